/* .netrc as people write it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "http/http.h"

static void the_first_entry_of_a_host_is_found(void **state)
{
	static const struct {
		const char *text, *found; /* NULL: none */
	} rows[] = {
	        {"machine h login me password secret", "me:secret"},
	        {"machine other login x password y\nmachine h\n\tlogin me\n\tpassword secret\n", "me:secret"},
	        {"machine H password secret login me", "me:secret"},
	        {"machine h login me", "me:"},
	        {"machine h password secret", NULL},
	        {"machine h login a password b machine h login c password d", "a:b"},
	        {"machine h password b machine h login c password d", "c:d"},
	        {"machine h password b machine h login c", "c:"},
	        {"machine other login x password y default login me password secret", "me:secret"},
	        {"default login me password secret machine h login x password y", "me:secret"},
	        {"machine h login \"m e\" password \"a\\\"b\\\\c\\td\"", "m e:a\"b\\c\td"},
	        {"machine h login me password a#b # machine h login x\n", "me:a#b"},
	        {"# machine h login x password y\nmachine h login me password secret", "me:secret"},
	        {"macdef init\nmachine h login x\n\nmachine h login me password secret", "me:secret"},
	        {"machine h account acc login me password secret", "me:secret"},
	        {"machine other login password password machine machine h login me password secret",
	                "me:secret"},
	        {"machine h.example login x password y", NULL},
	        {"machine login login me password secret", NULL},
	        {"machine h login \"unended", "unended:"},
	        {"machine", NULL},
	        {"", NULL},
	};

	(void)state;
	for (size_t i = 0; i < PS_ARRAY_LEN(rows); i++) {
		ps_autostrbuf struct ps_strbuf found = {0};
		bool is_there = ps_netrc_find(rows[i].text, strlen(rows[i].text), "h", &found);

		assert_int_equal(is_there, rows[i].found != NULL);
		if (is_there)
			assert_string_equal(ps_strbuf_peek(&found), rows[i].found);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(the_first_entry_of_a_host_is_found)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
