#!/usr/bin/env bash
# Every row of the loader's table of options is a member of penstock.h, and the other way round;
# the pages of libpenstock and bench --help have it, and a test names it.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# rows OPTION|FIELD: prints the names in that table.
rows() { sed -nE "s/^        $1\((\w+),.*/\1/p; s/^        $1_AT\(\"(\w+)\",.*/\1/p" loader/option/option.c | sort; }
# members STRUCT: prints the members of a struct of penstock.h.
members() {
	sed -n "/^struct $1 {/,/^};/p" loader/include/penstock.h | tr '\n\t' '  ' | sed -E 's|/\*([^*]\|\*+[^*/])*\*+/||g; s/^[^{]*\{//; s/\}.*//; s/\bconst //g; s/\(\*(\w+)\)\([^)]*\)/\1/g' |
		tr ';' '\n' | sed -E 's/\[[^]]*\]//g; s/^ *(const )?(struct )?\w+ (const )?//; s/[*, ]+/\n/g' | grep -E '^[a-z]' | sort
}
# Members that are no options: sizes, counts, what chooses a field's defaults, and functions.
own='size|fields|nfields|state_nbytes|transform|transform_ctx|transform_unit|columns|transform_leave|nmix|nmix_stages|nnumbers|nbatch_ends|nsample_weights|name|kind|ndim'

at_least "the table has options of loaders" 52 "$(rows OPTION | wc -l)"
at_least "the table has options of fields" 70 "$(rows FIELD | wc -l)"
equal "options are the members of penstock_options" "$(members penstock_options | grep -vxE "$own")" "$(rows OPTION)"
equal "options of fields are the members of penstock_field" "$(members penstock_field | grep -vxE "$own")" "$(rows FIELD)"

# The text of the pages and of all tests.
sed -E 's/\\f.//g; s/\\-/-/g' man/*.3 >"$T/page"
find tests -name '*.[ch]' -o -name '*.py' -o -name '*.sh' | grep -v tests/scripts/options.sh | xargs cat >"$T/tests"
without() { # FILE: prints the options that FILE does not name
	for name in $(rows OPTION) $(rows FIELD); do
		grep -qw -- "$name" "$1" || echo "$name"
	done
}
# Those that have gone are in the header alone.
tr '\n' ' ' <loader/option/option.c | grep -oE '(OPTION|FIELD)\(\w+,[^;]*' | sed -E 's/ (OPTION|FIELD)\(/\n&/g' |
	sed -nE 's/^ ?(OPTION|FIELD)\((\w+),.*\.gone = .*/\2/p' | sort >"$T/gone"
at_least "the table has options that have gone" 4 "$(wc -l <"$T/gone")"
equal "the pages have all options, but those that have gone" "$(cat "$T/gone")" "$(without "$T/page" | sort)"
equal "each option is named by a test" "" "$(without "$T/tests")"
# Rows with a .flag are options of penstock-loader bench.
if [[ -x $top_builddir/penstock-loader ]]; then
	tr '\n' ' ' <loader/option/option.c | grep -oE 'OPTION\(\w+,[^;]*' | sed -E 's/ OPTION\(/\n&/g' |
		sed -nE 's/^ ?OPTION\((\w+),.*\.flag = .*/--\1/p' | tr _ - | sort >"$T/flags"
	at_least "the table has options of bench" 20 "$(wc -l <"$T/flags")"
	penstock-loader bench --help | grep -oE '^  --[a-z-]+' | tr -d ' ' | sort >"$T/bench"
	equal "bench --help has all options of the table that are for bench" "" "$(comm -23 "$T/flags" "$T/bench")"
fi
equal "an option that is in no page is reported" \
	"no_such_option" "$(rows() { echo no_such_option; } && without "$T/page" | uniq)"
