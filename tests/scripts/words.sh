#!/usr/bin/env bash
# Words to be replaced, and lines over 110 columns, may only become fewer (words.txt).
. "$(dirname "$0")/../lib.sh"

# count TOP [ARGUMENT...]: runs word_counts.py with the table of that tree.
count() { "$python" "$1/tests/scripts/word_counts.py" "${@:2}"; }

equal "no word and no long line is more frequent than words.txt allows" "" "$(count "$top_srcdir" || true)"

mkdir -p "$T/tree/tests/scripts" "$T/tree/base"
cp "$top_srcdir/tests/scripts/word_counts.py" "$T/tree/tests/scripts/"
printf '%s\n' '# a comment' '2 0 - \bnobody\b	no thread' \
	'0 - - lines over 110 columns	' >"$T/tree/tests/scripts/words.txt"
printf '%s\n' '/* Nobody asks; nobody waits.' ' * Somebody does. */' >"$T/tree/base/a.c"
check "as many words as the table allows are no error" count "$T/tree"
printf '%105s\tx\n' "/* nobody */" >>"$T/tree/base/a.c"
equal "one more word and a long line are errors" "sources: 3 x \\bnobody\\b, at most 2
sources: 1 x lines over 110 columns, at most 0" "$(count "$T/tree" | sed 's/;.*//')"
equal "--show lists the places" "base/a.c:3: /* nobody */	x" \
	"$(count "$T/tree" --show 'lines over 110 columns')"
echo '/* nobody */' >"$T/tree/base/a.c"
count "$T/tree" --lower
equal "--lower lowers the table" \
	"1 0" "$(awk '!/^#/ {print $1}' "$T/tree/tests/scripts/words.txt" | paste -sd ' ')"
echo 'Nobody and nobody.' >"$T/tree/base/a.c"
count "$T/tree" --lower >"$T/out" || true
equal "--lower never raises the table" \
	"1 0" "$(awk '!/^#/ {print $1}' "$T/tree/tests/scripts/words.txt" | paste -sd ' ')"
