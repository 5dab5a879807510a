#!/usr/bin/env bash
# The web site of the documentation: it has all documents, can be searched, and a broken link is an error.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../lib.sh"
requires python:sphinx python:furo python:myst_parser python:sphinx_copybutton pandoc
has_penstock_python || true

check "the site is built" "$python" "$top_srcdir/scripts/html" "$T/html"
check "the first page is README" grep -q "<h1>Penstock<" "$T/html/index.html"
check "a man page that a text names is linked" \
	grep -q 'href="../../man/penstock-mount.html">penstock-mount(1)' "$T/html/docs/guides/mount.html"
check "options of man pages keep their two dashes" grep -q -- '<strong>--cache-size</strong>' "$T/html/man/penstock-mount.html"
check "a man page has contents" grep -q 'href="#options">OPTIONS' "$T/html/man/penstock-mount.html"
check "pictures are in the site" test -s "$T/html/_images/read-path.svg"
check "the search index knows the documents" grep -q 'docs/guides/quick-start' "$T/html/searchindex.js"
documents=$(cd "$top_srcdir" && { ls ./*.md docs/*.md docs/*/*.md && grep -L '^\.so ' man/*.[1-9]; } | sed -E 's/\.(md|[1-9])$//')
for name in $documents; do
	test -s "$T/html/$name.html" || echo "$name" >>"$T/missing"
	[[ $name = ./README ]] || grep -q "href=\"${name#./}.html" "$T/html/README.html" || echo "$name is not in the navigation" >>"$T/missing"
done
check "each document is a page, and the navigation leads to it" test ! -e "$T/missing"
if [[ $no_python ]]; then
	skip "the Python reference" "$no_python"
else
	check "the Python reference has methods with their arguments" \
		grep -q 'id="penstock.Loader.load_state_dict"' "$T/html/docs/site/python-reference.html"
fi

mkdir -p "$T/tree/tests/bench"
cp -r "$top_srcdir"/{docs,man,scripts} "$top_srcdir"/*.md "$T/tree/"
cp "$top_srcdir"/tests/README.md "$T/tree/tests/"
cp "$top_srcdir"/tests/bench/{RESULTS.md,*.svg} "$T/tree/tests/bench/"
echo 'See [there](nowhere.md) and [here](docs/recipes.md#no-such-heading).' >>"$T/tree/README.md"
rc=0
"$python" "$T/tree/scripts/html" "$T/broken" >"$T/said" 2>&1 || rc=$?
equal "a broken link is an error" 1 "$rc"
check "the error names the page and the link" grep -q 'README.md.*nowhere.md' "$T/said"
check "a link to a missing heading is an error" grep -q 'README.md.*no-such-heading' "$T/said"
