#!/usr/bin/env bash
# The web site of the documents: its links work, and a broken link is an error.
. "$(dirname "$0")/../lib.sh"
requires python:markdown mandoc
has_penstock_python || true

check "the site is made" "$python" "$top_srcdir/scripts/html" "$T/html"
check "the site's first page is README" grep -q "<h1 id=\"penstock\">Penstock</h1>" "$T/html/index.html"
check "a manual page that a text names is linked" \
	grep -q 'href="../../man/penstock-mount.1.html">penstock-mount(1)' "$T/html/docs/guides/mount.html"
check "pictures are in the site" test -s "$T/html/tests/bench/read-path.svg"
if [[ $no_python ]]; then
	skip "the Python reference" "$no_python"
else
	check "the Python reference has methods with their arguments" \
		grep -q '<h3 id=Loader.load_state_dict>' "$T/html/python.html"
fi

mkdir -p "$T/tree/tests/bench" "$T/tree/loader/include"
cp -r "$top_srcdir"/{docs,man,scripts} "$top_srcdir"/*.md "$T/tree/"
cp "$top_srcdir"/tests/README.md "$T/tree/tests/"
cp "$top_srcdir"/tests/bench/{RESULTS.md,read-path.svg} "$T/tree/tests/bench/"
cp "$top_srcdir/loader/include/penstock.h" "$T/tree/loader/include/"
echo 'See [there](nowhere.md) and [here](docs/recipes.md#no-such-heading).' >>"$T/tree/README.md"
rc=0
"$python" "$T/tree/scripts/html" "$T/broken" >"$T/said" 2>&1 || rc=$?
equal "a broken link is an error" 1 "$rc"
check "the error names the page and the link" grep -qx 'html: broken link: index.html: nowhere.md' "$T/said"
check "a link to a missing heading is an error" \
	grep -qx 'html: broken link: index.html: docs/recipes.html#no-such-heading' "$T/said"
