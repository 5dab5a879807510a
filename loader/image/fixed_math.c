#include "image/fixed_math.h"

#include <math.h>

/* ln 2 in two parts: a multiple of the first by a small integer is exact. */
#define LN2_HIGH 0x1.62e42fefa0000p-1
#define LN2_LOW 0x1.cf79abc9e3b3ap-40
#define DEGREE 1.74532925199432957692e-02

/* x = 2^e * m with m near 1, ln m = 2 artanh((m - 1) / (m + 1)). */
double ps_fixed_log(double x)
{
	int e;
	double m = frexp(x, &e);
	if (m < 0.70710678118654752) {
		m *= 2;
		e--;
	}
	double t = (m - 1) / (m + 1), square = t * t, series = 0;
	for (int k = 23; k >= 1; k -= 2) /* |t| < 0.172: the next term is below 2^-60 */
		series = series * square + 1.0 / k;
	return e * LN2_HIGH + (e * LN2_LOW + 2 * t * series);
}

/* x = n ln 2 + r with |r| < 0.35. */
double ps_fixed_exp(double x)
{
	double n = floor(x * 1.4426950408889634 + 0.5);
	double r = (x - n * LN2_HIGH) - n * LN2_LOW, series = 1;
	for (int k = 14; k >= 1; k--)
		series = 1 + series * r / k;
	return ldexp(series, (int)n);
}

/* |x| <= pi / 4: the terms left out are below 2^-60. */
static double series_sin(double x)
{
	double square = x * x, series = 1;
	for (int k = 16; k >= 2; k -= 2)
		series = 1 - series * square / (k * (k + 1));
	return x * series;
}

static double series_cos(double x)
{
	double square = x * x, series = 1;
	for (int k = 17; k >= 1; k -= 2)
		series = 1 - series * square / (k * (k + 1));
	return series;
}

double ps_fixed_sin(double degrees)
{
	double quarters = floor(degrees / 90 + 0.5), x = (degrees - quarters * 90) * DEGREE;
	switch ((long)quarters & 3) {
	case 0:
		return series_sin(x);
	case 1:
		return series_cos(x);
	case 2:
		return -series_sin(x);
	default:
		return -series_cos(x);
	}
}

double ps_fixed_cos(double degrees)
{
	return ps_fixed_sin(degrees + 90);
}
