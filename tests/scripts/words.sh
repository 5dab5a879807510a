#!/usr/bin/env bash
# Words that are on their way out, and lines over 110 columns, become fewer (words.txt).
. "$(dirname "$0")/../lib.sh"

# count TOP [ARGUMENT...]: with the table of that tree.
count() { "$python" "$1/tests/scripts/word_counts.py" "${@:2}"; }

equal "no word and no long line more than words.txt has" "" "$(count "$top_srcdir" || true)"

mkdir -p "$T/tree/tests/scripts" "$T/tree/base"
cp "$top_srcdir/tests/scripts/word_counts.py" "$T/tree/tests/scripts/"
printf '%s\n' '# a comment' '2 0 - \bnobody\b	no thread' \
	'0 - - lines over 110 columns	' >"$T/tree/tests/scripts/words.txt"
printf '%s\n' '/* Nobody asks; nobody waits.' ' * Somebody does. */' >"$T/tree/base/a.c"
check "as many as the table has are no error" count "$T/tree"
printf '%105s\tx\n' "/* nobody */" >>"$T/tree/base/a.c"
equal "one more is, and so is a long line" "sources: 3 x \\bnobody\\b, at most 2
sources: 1 x lines over 110 columns, at most 0" "$(count "$T/tree" | sed 's/;.*//')"
equal "they are shown" "base/a.c:3: /* nobody */	x" \
	"$(count "$T/tree" --show 'lines over 110 columns')"
echo '/* nobody */' >"$T/tree/base/a.c"
count "$T/tree" --lower
equal "the table becomes less" "1 0" "$(awk '!/^#/ {print $1}' "$T/tree/tests/scripts/words.txt" | paste -sd ' ')"
echo 'Nobody and nobody.' >"$T/tree/base/a.c"
count "$T/tree" --lower >"$T/out" || true
equal "and never more" "1 0" "$(awk '!/^#/ {print $1}' "$T/tree/tests/scripts/words.txt" | paste -sd ' ')"
