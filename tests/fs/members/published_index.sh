#!/usr/bin/env bash
# Indexes and the catalogue that a publisher uploads beside the shards are used through any mount: lengths and
# equal ranks need one request and read no shard. A shard that was replaced by another of its size gives
# ESTALE, never wrong data.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount loader nginx python:numpy
penstock_python

# files SEED: writes 240 samples to $T/files
files() {
	rm -rf "$T/files" && mkdir "$T/files"
	"$python" - "$T/files" "$1" <<'PY'
import random, sys
out, rng = sys.argv[1], random.Random(sys.argv[2])
for i in range(240):
    open(f"{out}/{sys.argv[2]}{i:05d}.cls", "w").write(str(i))
    open(f"{out}/{sys.argv[2]}{i:05d}.bin", "wb").write(rng.randbytes(9000))
PY
}
files a
check "pack makes shards with indexes" \
	penstock-loader pack --index --max-count 20 "$T/files" "$T/www/t-%03d.tar"
check "pack makes compressed shards with indexes" \
	penstock-loader pack --index --max-count 20 "$T/files" "$T/www/z/t-%03d.tar.zst"
start_nginx

load() { timeout 100 "$python" "$T/load.py" "$@"; }
cat >"$T/load.py" <<'PY'
import sys, numpy, penstock
what, mnt = sys.argv[1:3]
options = dict(batch=20, fields=[penstock.Int("cls")], memory_budget="64M")
def loader(path=mnt, **more):
    return penstock.Loader(path, **{**options, **more})
if what == "len":
    with loader() as l:
        print(len(l), l.samples())
elif what == "ranks":
    seen = []
    for rank in range(int(sys.argv[3])):
        with loader(rank=rank, world=int(sys.argv[3]), end="split", batch=4) as l:
            n = 0
            for b in l:
                n += 1
                seen += numpy.asarray(b["cls"]).tolist()
            print("rank", n, len(l))
    print(len(seen), len(set(seen)))
elif what == "lengths":
    n = int(sys.argv[3])
    print(*[len(loader(rank=r, world=n, end="split", batch=4)) for r in range(n)])
elif what == "numbers":
    with loader() as l:
        print(numpy.asarray(l.get([0, 133, 239])["cls"]).tolist())
elif what == "stale":
    got, error = [], None
    with loader(rank=0, world=1, end="drop_last", order="none", lanes=1, **eval(sys.argv[3])) as l:
        try:
            for b in l:
                got += numpy.asarray(b["cls"]).tolist()
        except Exception as e:
            error = e
    print(len(got), got == list(range(len(got))), getattr(error, "errno", None), error)
elif what == "skipped":
    with loader(end="drop_last", order="none", lanes=1, on_error="skip", max_bad=1000) as l:
        n = sum(int(numpy.asarray(b["__valid__"]).sum()) for b in l)
        print(n, l.stats()["shards_lost"])
elif what == "number":
    try:
        with loader() as l:
            print(numpy.asarray(l.get([int(sys.argv[3])])["cls"]).tolist())
    except Exception as e:
        print(e.errno)
elif what == "error":
    try:
        loader(world=2, rank=0, **eval(sys.argv[3]))
    except Exception as e:
        print(e)
PY
# The catalogue alone, and shards that cannot be read.
mkdir "$T/www/empty"
cp "$T/www/SHARDS.psc" "$T/www/empty/"
for shard in "$T"/www/t-*.tar; do truncate -s "$(stat -c %s "$shard")" "$T/www/empty/${shard##*/}"; done

MNT=$T/a
mount_penstock "$ORIGIN/"
equal "len() by the catalogue alone" "12 240" "$(load len "$MNT/empty")"
equal "len() takes one request for the catalogue" \
	1 "$(awk '$1 == "GET" && $2 == "/empty/SHARDS.psc"' "$T/nginx/access.log" | wc -l)"
equal "lengths of ranks by the catalogue alone" "20 20 20" "$(load lengths "$MNT/empty" 3)"
equal "ranks are equal" "rank 20 20
rank 20 20
rank 20 20
240 240" "$(load ranks "$MNT" 3)"
check_not "no request was answered 404" grep " 404 " "$T/nginx/access.log"
equal "samples are read by number" "[0, 133, 239]" "$(load numbers "$MNT")"
equal "len() of compressed shards" "12 240" "$(load len "$MNT/z")"
equal "samples of compressed shards are read by number" "[0, 133, 239]" "$(load numbers "$MNT/z")"
check "index --verify confirms the indexes" penstock-loader index --verify "$MNT/t-000.tar" "$MNT/t-011.tar"

# Another origin of the same files, with other ETags and times.
cp -r "$T/www" "$T/copy"
touch -d '2001-01-01' "$T"/copy/*.tar
MNT=$T/b
check "a mount of another origin" mount_penstock "file://$T/copy/" --cache-dir "$T/cache2"
equal "len() on another origin" "12 240" "$(load len "$MNT")"
equal "samples by number on another origin" "[0, 133, 239]" "$(load numbers "$MNT")"

# Braces have no listing: they name the files.
MNT=$T/braces
check "a mount of braces" mount_penstock "$ORIGIN/{t-{000..011}.tar{,.psx},SHARDS.psc}" \
	--cache-dir "$T/cache6"
equal "len() on braces" "12 240" "$(load len "$MNT/t-{000..011}.tar")"
equal "samples by number on braces" "[0, 133, 239]" "$(load numbers "$MNT/t-{000..011}.tar")"

# A bucket.
start_cloud
mkdir -p "$T/cloud/bucket/train"
cp "$T"/www/t-*.tar* "$T/www/SHARDS.psc" "$T/cloud/bucket/train/"
echo "AKIAEXAMPLE hush" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=hush AWS_REGION=us-east-1 \
	AWS_ENDPOINT_URL_S3=$CLOUD
MNT=$T/s3
check "a mount of a bucket" mount_penstock s3://bucket/train/ --cache-dir "$T/cache7"
equal "len() on a bucket" "12 240" "$(load len "$MNT")"
equal "samples by number on a bucket" "[0, 133, 239]" "$(load numbers "$MNT")"

# A folder of indexes that is made on one mount and used on another.
check "index --dir on one mount" penstock-loader index --dir "$T/idx" "$T/a"
rm "$T"/copy/*.ps[cx]
MNT=$T/c
mount_penstock "file://$T/copy/" --cache-dir "$T/cache3"
error=$(load error "$MNT" '{}')
check "without an index the error names the missing one" grep \
	-q 't-000.tar.psx: no such index; make it' <<<"$error"
equal "len() on another mount by that folder" "12 240" "$("$python" - "$MNT" "$T/idx" <<'PY'
import sys, penstock
with penstock.Loader(sys.argv[1], batch=20, fields=[penstock.Int("cls")], index_dir=sys.argv[2]) as l:
    print(len(l), l.samples())
PY
)"
two=$(basename "$T/idx/t-000.tar-"*)
cp "$T/idx/$two" "$T/idx/${two%-*}-0123456789abcdef.psx"
MNT=$T/e # nothing is cached there, so no header can decide
mount_penstock "file://$T/copy/" --cache-dir "$T/cache5"
error=$(load error "$MNT" "{'index_dir': '$T/idx'}")
check "two indexes that fit are an error" grep -q 'two indexes in .* fit its name and size' <<<"$error"
check "the error names the first index" grep -q "$two" <<<"$error"
check "the error names the second index" grep -q "0123456789abcdef.psx" <<<"$error"

# index=make makes indexes only of cached shards: others would have to be fetched.
MNT=$T/f
mount_penstock "file://$T/copy/" --cache-dir "$T/cache8"
error=$(load error "$MNT" "{'index': 'make', 'index_dir': '$T/made'}")
check "index=make is refused for remote shards, with bytes and time" \
	grep -Eq '12 of 12 shards have no index and are not local.* could fetch 2\.[0-9] MB, 0\.0 s at 100 MB/s' <<<"$error"
check "no index was made" rmdir "$T/made"
check "warm fetches the shards" penstock warm "$MNT"
equal "index=make works for cached shards" "60 ok" "$("$python" - "$MNT" "$T/made" <<'PY'
import sys, penstock
with penstock.Loader(sys.argv[1], batch=2, rank=0, world=2, fields=[penstock.Int("cls")], index="make", index_dir=sys.argv[2]) as l:
    print(len(l), "ok")
PY
)"
equal "each shard has an index" 12 "$(find "$T/made" -name '*.psx' | wc -l)"

# Shard 5 is replaced by another one with the same size, number of samples and labels (100 .. 119): no sample
# of the new shard may be read.
files b
check "pack makes another shard" penstock-loader pack --max-count 20 "$T/files" "$T/other/t-%03d.tar"
equal "the other shard has the same size" \
	"$(stat -c %s "$T/www/t-005.tar")" "$(stat -c %s "$T/other/t-005.tar")"
cp "$T/other/t-005.tar" "$T/www/t-005.tar"
MNT=$T/d
mount_penstock "$ORIGIN/" --cache-dir "$T/cache4"
equal "a replaced shard is an error at its first sample" \
	"100 True 116" "$(load stale "$MNT" '{}' | cut -d ' ' -f 1-3)"
check "the error says that the shard was changed" \
	grep -q 't-005.tar.*the shard was changed since' <(load stale "$MNT" '{}')
equal "with on_error=skip all other shards are read" "220 1" "$(load skipped "$MNT")"
equal "a sample of the replaced shard by number is an error" 116 "$(load number "$MNT" 107)"
equal "a sample of another shard by number is read" "[120]" "$(load number "$MNT" 120)"
check_not "index --verify detects the replaced shard" penstock-loader index --verify "$MNT/t-005.tar"
check "index --verify says how to fix it on a mount" grep \
	-q "t-005.tar.*; if the mount shows an old version of one: penstock evict" \
	<(penstock-loader index --verify "$MNT/t-005.tar" 2>&1)
check "index --verify accepts another shard" penstock-loader index --verify "$MNT/t-004.tar"
