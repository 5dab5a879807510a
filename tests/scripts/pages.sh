#!/usr/bin/env bash
# libpenstock(3) has every public function, with the prototype of penstock.h; pages fit into a terminal of 80
# columns.
. "$(dirname "$0")/../lib.sh"

man=$top_srcdir/man
# Prints C without comments, in one line, with one blank between words and none beside a parenthesis or a
# comma or after a star.
one_line() {
	tr '\n' ' ' | sed -E 's|/\*([^*]\|\*+[^*/])*\*+/||g; s/[ \t]+/ /g; s/ ?([(),;]) ?/\1/g; s/ ?\* ?/ */g; s/\* \*/**/g'
}
prototypes() {
	one_line | grep -oE '[a-z][a-z0-9_ ]* \**penstock_[a-z0-9_]+\([^(){};]*\);' |
		sed -E 's/^(extern|.*;) //' | sort
}
# Joins the arguments of .BI without blanks, as the macro does.
join() {
	awk '/^\.B/ {
		line = $0
		sub(/^\.BI? /, "", line)
		if (!/^\.BI/) {print line; next}
		out = ""
		while (line != "") {
			if (match(line, /^"[^"]*"/)) {out = out substr(line, 2, RLENGTH - 2)}
			else {match(line, /^[^ ]+/); out = out substr(line, 1, RLENGTH)}
			line = substr(line, RLENGTH + 1)
			sub(/^ /, "", line)
		}
		print out
	}'
}

prototypes <"$top_srcdir/loader/include/penstock.h" >"$T/header"
sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$man/libpenstock.3" | sed 's/\\-/-/g; /#include/d' | join |
	prototypes >"$T/page"
functions=$(sed -nE 's/^\t(penstock_[a-z0-9_]+);$/\1/p' "$top_srcdir/loader/libpenstock.map" | sort)
at_least "the library has functions" 32 "$(wc -w <<<"$functions")"
equal "the header has the functions that the library exports" "$functions" \
	"$(grep -oE 'penstock_[a-z0-9_]+\(' "$T/header" | tr -d '(' | sort)"
for function in $functions; do
	equal "$function is in libpenstock(3) as in the header" "$(grep -w "$function" "$T/header")" \
		"$(grep -w "$function" "$T/page" || true)"
done
equal "libpenstock(3) has no other prototypes than the header" "$(cat "$T/header")" "$(cat "$T/page")"

version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' "$top_srcdir/configure.ac")
for page in "$man"/*.[135]; do
	check "$(basename "$page") is of this version" grep -q "^\.TH.*\"penstock $version\"" "$page"
done
equal "the Python package is of this version" "version = \"$version\"" \
	"$(grep '^version' "$top_srcdir/loader/python/pyproject.toml")"
parts=$(sed -nE 's/^#define PENSTOCK_VERSION_[A-Z]+ ([0-9]+)$/\1/p' "$top_srcdir/loader/include/penstock.h")
equal "penstock.h is of this version" "$version" "$(paste -sd . <<<"$parts")"
equal "Debian's packages are of this version" "$version" \
	"$(sed -nE '1s/.*\((.*)-[0-9]+\).*/\1/p' "$top_srcdir/debian/changelog")"
equal "the RPMs are of this version" \
	"$version" "$(sed -nE 's/^Version: //p' "$top_srcdir/scripts/penstock.spec")"

# No function was ever removed: each version of the map except the first has raised current and age.
versions=$(grep -c '^PENSTOCK_' "$top_srcdir/loader/libpenstock.map")
equal "the library's -version-info agrees with the versions in its map" \
	"$((versions - 1)):0:$((versions - 1))" \
	"$(sed -nE 's/.*-version-info ([0-9:]+).*/\1/p' "$top_srcdir/loader/Makemodule.am" | sed -E 's/:[0-9]+:/:0:/')"

# A program that needs a function of a version needs the package of that release, not of the one before.
equal "Debian's symbols have each version of the map, with its release" \
	"$(sed -nE 's/^PENSTOCK_([0-9.]+) \{/PENSTOCK_\1 \1.0~/p' "$top_srcdir/loader/libpenstock.map")" \
	"$(sed -nE 's/^ \(symver\)//p' "$top_srcdir/debian/libpenstock0.symbols")"

for page in libpenstock.3 penstock.1 penstock-loader.1 penstock-mount.1 penstock.conf.5; do
	if ! command -v groff >/dev/null || ! command -v man >/dev/null; then
		break
	fi
	MANWIDTH=80 MANPAGER=cat man --warnings -l "$man/$page" >"$T/text" 2>"$T/err"
	equal "$page: groff has no warnings" "" \
		"$(cat "$T/err")" # such as for a line that begins with a dot and is lost
	check "$page has a synopsis" grep -q "^SYNOPSIS" "$T/text"
	[[ $page == libpenstock.3 || $page == penstock.1 ]] ||
		continue # the others show long lines of other programs
	equal "$page fits into 80 columns" "" "$(LC_ALL=C.UTF-8 awk 'length > 80' "$T/text")"
done
