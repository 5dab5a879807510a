#!/usr/bin/env bash
# Runs each block of docs/python/remote.md, with local servers for the hosts that it names, and of the quick start.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx python:PIL
penstock_python

mkdir -p "$T/tmp" "$T/www/bucket"
export TMPDIR=$T/tmp PENSTOCK_CACHE_DIR=$CACHE
[[ $(stat -f -c %T "$T") != tmpfs ]] || skip_all "$T is in memory, where no cache of an owner's mount may be"
# The page needs no packages from an index: this keeps python_docs_test.py from installing any.
export PENSTOCK_TEST_VENV=docs
make_data() {
	cd "$T/www"
	PYTHONPATH=$top_srcdir/tests/loader:$PYTHONPATH "$python" -c \
		'import python_docs_test as docs; docs.data_make()'
}
check "the data of the page is made" make_data
cp -r "$T/www/train" "$T/www/bucket/"
start_nginx
export PENSTOCK_DOCS_ORIGIN=$ORIGIN AWS_ENDPOINT_URL=$ORIGIN
"$python" "$top_srcdir/tests/loader/python_docs_test.py" remote.md quick-start.md >"$T/docs.out" 2>&1 || true
at_least "remote.md has at least six blocks" 6 "$(grep -c '^ok .*remote' "$T/docs.out")"
at_least "the quick start has at least eight blocks" 8 "$(grep -c '^ok .*quick-start' "$T/docs.out")"
lacking=$(grep -A 12 -e '^not ok' -e SKIP "$T/docs.out" || true)
equal "all blocks run, and print what the page shows" "" "$lacking"
unmounted() { [[ -z $(ps_mounts_below "$T/tmp") ]]; }
check "no mount is left" wait_until 10 unmounted
