#!/usr/bin/env bash
# Runs the guide to pre-training on tokens, and the C program that it names, with an S3 server: the loader mounts the bucket.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/cloud/cloud.sh"
requires mount loader python:numpy python:torch
penstock_python

[[ $(stat -f -c %T "$T") != tmpfs ]] || skip_all "$T is in memory, where no cache of an owner's mount may be"
start_cloud
echo "AKIABASE hush/base" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIABASE AWS_SECRET_ACCESS_KEY=hush/base AWS_ENDPOINT_URL=$CLOUD
mkdir -p "$T/tmp" "$T/cloud/bucket/tokens"
export TMPDIR=$T/tmp PENSTOCK_CACHE_DIR=$CACHE PENSTOCK_TEST_VENV=docs
"$python" - "$T/cloud/bucket/tokens" <<-'PYTHON'
	import struct, sys
	import numpy
	random = numpy.random.default_rng(1)
	for i in range(4):
	    lens = numpy.maximum(1, random.lognormal(4.5, 1, 300)).astype("<i4")
	    ends = numpy.cumsum(lens, dtype="<i8")
	    random.zipf(1.3, ends[-1]).clip(0, 999).astype("<u2").tofile("%s/%d.bin" % (sys.argv[1], i))
	    with open("%s/%d.idx" % (sys.argv[1], i), "wb") as f:
	        f.write(struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, len(lens), len(lens) + 1))
	        for column in lens, (ends - lens) * 2, numpy.arange(len(lens) + 1):
	            f.write(column.tobytes())
PYTHON

export PENSTOCK_DOCS_ORIGIN=$CLOUD
"$python" "$top_srcdir/tests/loader/python_docs_test.py" tokens.md >"$T/docs.out" 2>&1 || true
at_least "the guide has blocks" 4 "$(grep -c '^ok .*tokens-line' "$T/docs.out")"
lacking=$(grep -v "SKIP needs a GPU and flash-attn" "$T/docs.out" | grep -A 12 -e '^not ok' -e SKIP || true)
equal "all blocks but that of flash-attention run, and print what the guide shows" "" "$lacking"
at_least "the objects were read from the server" 4 "$(cloud_seen 'GET /bucket/tokens/[0-9].bin 20[06]')"

# The same files by the C program, on a mount that the loader makes and locally.
by_mount() {
	"$python" -c 'import penstock, subprocess, sys
with penstock.mount("s3://bucket/tokens/") as folder:
    subprocess.run([sys.argv[1], folder.path + "/*.bin"], check=True)' "$top_builddir/loader/examples/tokens"
}
by_mount >"$T/by_mount" || true
"$top_builddir/loader/examples/tokens" "$T/cloud/bucket/tokens/*.bin" >"$T/local"
equal "the C program sees through a mount what local files have" "$(cat "$T/local")" "$(cat "$T/by_mount")"
check "it counts rows and parts" grep -Eq '^[0-9]{2,} rows, [0-9]{3,} parts, the longest of [0-9]+ tokens' "$T/local"
unmounted() { [[ -z $(ps_mounts_below "$T/tmp") ]]; }
check "no mount is left" wait_until 10 unmounted
