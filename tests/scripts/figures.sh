#!/usr/bin/env bash
# The figures in README are those of RESULTS.md, and README's chart shows the first rows of README's table.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

# Rows of the table below a heading, without the outer bars: "what | penstock | others[ | command]".
rows() {
	awk -v heading="$2" '$0 == heading {on = 1; next} /^## / {on = 0} on && /^\| [^-]/' "$1" |
		sed -e 1d -e 's/^| //' -e 's/ |$//'
}
mapfile -t shown < <(rows README.md "## How fast")
rows tests/bench/RESULTS.md "## Current figures" >"$T/current"

unknown=
for row in "${shown[@]}"; do
	grep -qF -- "$row | " "$T/current" || unknown+="$row"$'\n'
done
check "README shows figures" test "${#shown[@]}" -ge 4
equal "each row of README's figures is in the first table of RESULTS.md" "" "$unknown"
equal "RESULTS.md begins with the current figures" "## Current figures" \
	"$(grep -m 1 '^## ' tests/bench/RESULTS.md)"
equal "each current figure names the command that made it" "" "$(awk -F ' [|] ' '$4 !~ /`/' "$T/current")"

# Bars are drawn in the table's order: penstock, then the others.
drawn=$(grep -oE 'font-size="10">[0-9.]+' tests/bench/read-path.svg | cut -d '>' -f 2 | paste -sd ' ')
charted=$(printf '%s\n' "${shown[@]}" | head -n "$(grep -c 'text-anchor="end"' tests/bench/read-path.svg)" |
	sed 's/^[^|]*|//' | grep -oE '[0-9]+\.[0-9]+' | paste -sd ' ')
equal "the chart shows the table's first rows" "$charted" "$drawn"
