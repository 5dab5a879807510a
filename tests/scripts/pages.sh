#!/usr/bin/env bash
# Every public function has a manual page, with the prototype and the errors of penstock.h; pages fit into a
# terminal of 80 columns.
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
for page in "$man"/*.3; do
	sed -n '/^\.SH SYNOPSIS/,/^\.SH DESCRIPTION/p' "$page"
done | sed 's/\\-/-/g; /#include/d; /typedef/,/);$/d' | join | prototypes >"$T/pages"
functions=$(sed -nE 's/^\t(penstock_[a-z0-9_]+);$/\1/p' "$top_srcdir/loader/libpenstock.map" | sort)
at_least "the library has functions" 32 "$(wc -w <<<"$functions")"
equal "the header has the functions that the library exports" "$functions" \
	"$(grep -oE 'penstock_[a-z0-9_]+\(' "$T/header" | tr -d '(' | sort)"
# text_of FUNCTION: prints the page that man(1) shows for it. One of a family has a page of one line, which
# names the page of the family.
text_of() {
	local page=$man/$1.3 link
	link=$(sed -nE '1s/^\.so man3\/(.*)/\1/p' "$page")
	cat "$man/${link:-$1.3}"
}
# errors_of FUNCTION: prints the errors that the comment before its declaration names.
errors_of() {
	"$python" - "$top_srcdir/loader/include/penstock.h" "$1" <<'PY'
import re, sys
text = open(sys.argv[1], encoding="utf-8").read()
before = text[: re.search(r"\b%s\(" % sys.argv[2], re.sub(r"/\*.*?\*/", lambda m: " " * len(m[0]), text, flags=re.S)).start()]
comment = re.search(r"/\*((?:(?!\*/).)*)\*/\s*[^;{}]*\Z", before, re.S)
print("\n".join(sorted(set(re.findall(r"-E[A-Z0-9]+", comment[1])))) if comment else "")
PY
}
for function in $functions; do
	equal "$function is in a page as in the header" "$(grep -w "$function" "$T/header")" \
		"$(grep -w "$function" "$T/pages" || true)"
	text_of "$function" | sed 's/\\-/-/g; s/\\%//g' >"$T/page"
	check "$function is in the NAME of its page" grep -qw "$function" <(sed -n '/^\.SH NAME/{n;p;}' "$T/page")
	check "$function is installed" grep -qF "man/$function.3" "$man/Makemodule.am"
	missing=$(errors_of "$function" | while read -r code; do grep -qF -- "$code" "$T/page" || echo "$code"; done)
	equal "the page of $function has the errors of the header" "" "$missing"
	check "libpenstock(3) names $function" grep -qw "$function" "$man/libpenstock.3"
done
equal "the pages have no other prototypes than the header" "$(cat "$T/header")" "$(cat "$T/pages")"
at_least "errors of the header are found" 4 "$(errors_of penstock_loader_next | wc -l)"

version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' "$top_srcdir/configure.ac")
for page in "$man"/*.[135]; do
	! grep -q '^\.so ' "$page" || continue
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

for path in "$man"/*.3 "$man"/penstock{,-loader,-mount}.1 "$man/penstock.conf.5"; do
	page=${path##*/}
	if ! command -v groff >/dev/null || ! command -v man >/dev/null; then
		break
	fi
	! grep -q '^\.so ' "$path" || continue
	MANWIDTH=80 MANPAGER=cat man --warnings -l "$path" >"$T/text" 2>"$T/err"
	equal "$page: groff has no warnings" "" \
		"$(cat "$T/err")" # such as for a line that begins with a dot and is lost
	check "$page has a synopsis" grep -q "^SYNOPSIS" "$T/text"
	[[ $page == *.3 || $page == penstock.1 ]] ||
		continue # the others show long lines of other programs
	equal "$page fits into 80 columns" "" "$(LC_ALL=C.UTF-8 grep -E '^.{81}' "$T/text" || true)"
done
