#!/usr/bin/env bash
# Pages in Markdown: link targets exist, named files exist, and each folder has its line in
# architecture.md.
. "$(dirname "$0")/../lib.sh"
cd "$top_srcdir"

pages=(*.md docs/*.md docs/design/*.md docs/python/*.md docs/guides/*.md tests/README.md)
at_least "there are pages" 20 "${#pages[@]}"

# Prints broken links to files and to headings, which are named as GitHub names them.
links() {
	"$python" - "$@" <<'PY'
import os, re, sys
def anchors(path):
    found, code = set(), False
    for line in open(path, encoding="utf-8"):
        code ^= line.startswith("```")
        if not code and line.startswith("#"):
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(words.replace(" ", "-"))
    return found
for page in sys.argv[1:]:
    for target in re.findall(r"\]\(([^)\s]+)\)", open(page, encoding="utf-8").read()):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path) or anchor and anchor not in anchors(path):
            print(f"{page}: {target}")
PY
}
equal "each link's target exists" "" "$(links "${pages[@]}")"

# Prints `folder/file.c` and the like, from the top, that do not exist. A path may have a *, or NAME for any
# name.
named() {
	# shellcheck disable=SC2016 # backquotes are text
	grep -noE '`(base|cache|fs|loader|tests|scripts|docs|man|m4)/[A-Za-z0-9_./*-]+`' "$@" | tr -d '`' |
		while IFS=: read -r page line path; do
			[[ $path =~ NAME|ROOM ]] || compgen -G "$path" >/dev/null ||
				compgen -G "$path.c" >/dev/null ||
				compgen -G "$top_builddir/$path" >/dev/null || echo "$page:$line: $path"
		done
}
equal "each file that a page names exists" "" "$(named "${pages[@]}")"
# Prints names such as `file.c` that are no file of the tree.
bare() {
	# shellcheck disable=SC2016
	grep -noE '`[a-z0-9_]+\.(c|h|cu)`' "$@" | tr -d '`' | while IFS=: read -r page line name; do
		grep -qxF "$name" "$T/names" || echo "$page:$line: $name"
	done
}
find base cache fs loader tests -name '*.[ch]' -printf '%f\n' -o -name '*.cu' -printf '%f\n' >"$T/names"
echo jpegint.h >>"$T/names" # of libjpeg-turbo
equal "each file that is named without its folder exists" "" "$(bare "${pages[@]}")"

# Prints `ps_function()`, `struct ps_name` and constants that are not in the sources.
symbols() {
	# shellcheck disable=SC2016
	grep -noE '`(struct )?(ps_[a-z0-9_]+\(|ps_[a-z0-9_]+`|PS_[A-Z0-9_]+`|penstock_[a-z0-9_]+\()' "$@" |
		sed 's/`//g; s/struct //; s/($//' | while IFS=: read -r page line name; do
		grep -qxF "$name" "$T/symbols" || echo "$page:$line: $name"
	done
}
find base cache fs loader tests -name '*.[ch]' -exec grep -ohE '\b(ps|PS|penstock)_[A-Za-z0-9_]+' {} + |
	sort -u >"$T/symbols"
printf '%s\n' PS_TEST_KEEP PS_TEST_TIMEOUT penstock_faults >>"$T/symbols"
equal "each function, type and constant that a page names exists" "" "$(symbols "${pages[@]}")"

# shellcheck disable=SC2016
echo 'See `cache/fetch/absent.c`, [this](absent.md).' >"$T/page.md"
equal "a missing file is reported" "$T/page.md:1: cache/fetch/absent.c" "$(named "$T/page.md" /dev/null)"
equal "a broken link is reported" "$T/page.md: absent.md" "$(links "$T/page.md")"

absent=
for folder in base/ cache/*/ fs/*/ loader/*/; do
	[[ $folder == loader/examples/ ]] || grep -qF "\`$folder\`" docs/architecture.md || absent+="$folder "
done
equal "architecture.md has a line for each folder" "" "$absent"

for page in "${pages[@]}"; do
	long=$(LC_ALL=C.UTF-8 awk 'FNR == 1 {code = 0} /^```/ {code = !code} !code && !/^\|/ && !/^    / && length > 120' "$page")
	equal "$page: lines of text fit into 120 columns" "" "$long"
done
