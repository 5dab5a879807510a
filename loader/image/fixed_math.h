/* exp, log, sin and cos from additions, multiplications, divisions and roundings only, so that results do not
 * depend on the C library. Accurate to a few units in the last place. Threads: any. Errors: none. */
#ifndef PS_LOADER_IMAGE_FIXED_MATH_H
#define PS_LOADER_IMAGE_FIXED_MATH_H

double ps_fixed_log(double x); /* x > 0, not subnormal */
double ps_fixed_exp(double x); /* |x| < 700 */

/* Of an angle in degrees, |degrees| < 10^6. */
double ps_fixed_sin(double degrees);
double ps_fixed_cos(double degrees);

#endif
