#!/usr/bin/env bash
# Indexes and the catalogue that a publisher uploads beside the shards are taken through any mount: lengths
# and equal ranks from one request, and no shard is read for them. A shard that was replaced by another of its
# size is ESTALE, never wrong data.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../cloud/cloud.sh"
requires mount loader nginx python:numpy
penstock_python

# files SEED: 240 samples into $T/files
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
check "pack" penstock-loader pack --index --max-count 20 "$T/files" "$T/www/t-%03d.tar"
check "pack, compressed" penstock-loader pack --index --max-count 20 "$T/files" "$T/www/z/t-%03d.tar.zst"
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
equal "it was one request" 1 "$(awk '$1 == "GET" && $2 == "/empty/SHARDS.psc"' "$T/nginx/access.log" | wc -l)"
equal "so are ranks, of any number" "20 20 20" "$(load lengths "$MNT/empty" 3)"
equal "ranks are equal" "rank 20 20
rank 20 20
rank 20 20
240 240" "$(load ranks "$MNT" 3)"
check_not "no index was missed" grep " 404 " "$T/nginx/access.log"
equal "samples by number" "[0, 133, 239]" "$(load numbers "$MNT")"
equal "compressed shards, shown decompressed" "12 240" "$(load len "$MNT/z")"
equal "... by number" "[0, 133, 239]" "$(load numbers "$MNT/z")"
check "verified" penstock-loader index --verify "$MNT/t-000.tar" "$MNT/t-011.tar"

# Another place, another origin of the same files: another ETag, another time.
cp -r "$T/www" "$T/copy"
touch -d '2001-01-01' "$T"/copy/*.tar
MNT=$T/b
check "another mount" mount_penstock "file://$T/copy/" --cache-dir "$T/cache2"
equal "len() there" "12 240" "$(load len "$MNT")"
equal "numbers there" "[0, 133, 239]" "$(load numbers "$MNT")"

# Braces have no listing: they name what is to be asked for.
MNT=$T/braces
check "a mount of braces" mount_penstock "$ORIGIN/{t-{000..011}.tar{,.psx},SHARDS.psc}" \
	--cache-dir "$T/cache6"
equal "len() there" "12 240" "$(load len "$MNT/t-{000..011}.tar")"
equal "numbers there" "[0, 133, 239]" "$(load numbers "$MNT/t-{000..011}.tar")"

# A bucket.
start_cloud
mkdir -p "$T/cloud/bucket/train"
cp "$T"/www/t-*.tar* "$T/www/SHARDS.psc" "$T/cloud/bucket/train/"
echo "AKIAEXAMPLE hush" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=hush AWS_REGION=us-east-1 \
	AWS_ENDPOINT_URL_S3=$CLOUD
MNT=$T/s3
check "a mount of a bucket" mount_penstock s3://bucket/train/ --cache-dir "$T/cache7"
equal "len() there" "12 240" "$(load len "$MNT")"
equal "numbers there" "[0, 133, 239]" "$(load numbers "$MNT")"

# A folder of indexes, made at one mount, taken at another.
check "index --dir at one" penstock-loader index --dir "$T/idx" "$T/a"
rm "$T"/copy/*.ps[cx]
MNT=$T/c
mount_penstock "file://$T/copy/" --cache-dir "$T/cache3"
error=$(load error "$MNT" '{}')
check "without any, what is missing is named" grep \
	-q 't-000.tar.psx: no such index, and no catalogue' <<<"$error"
equal "len() at another" "12 240" "$("$python" - "$MNT" "$T/idx" <<'PY'
import sys, penstock
with penstock.Loader(sys.argv[1], batch=20, fields=[penstock.Int("cls")], index_dir=sys.argv[2]) as l:
    print(len(l), l.samples())
PY
)"
two=$(basename "$T/idx/t-000.tar-"*)
cp "$T/idx/$two" "$T/idx/${two%-*}-0123456789abcdef.psx"
MNT=$T/e # where nothing is cached, so that no header can tell
mount_penstock "file://$T/copy/" --cache-dir "$T/cache5"
error=$(load error "$MNT" "{'index_dir': '$T/idx'}")
check "two that fit are an error" grep -q 'two indexes in .* fit its name and size' <<<"$error"
check "... which names both" grep -q "$two" <<<"$error"
check "... both" grep -q "0123456789abcdef.psx" <<<"$error"

# What would have to be fetched for it is not walked over unasked; what is cached is.
MNT=$T/f
mount_penstock "file://$T/copy/" --cache-dir "$T/cache8"
error=$(load error "$MNT" "{'index': 'make', 'index_dir': '$T/made'}")
check "not over the network: bytes and time are told" \
	grep -Eq '12 of 12 shards have no index and are not local.* could fetch 2\.[0-9] MB, 0\.0 s at 100 MB/s' <<<"$error"
check "nothing was made" rmdir "$T/made"
check "warm" penstock warm "$MNT"
equal "of what is cached it is made" "60 ok" "$("$python" - "$MNT" "$T/made" <<'PY'
import sys, penstock
with penstock.Loader(sys.argv[1], batch=2, rank=0, world=2, fields=[penstock.Int("cls")], index="make", index_dir=sys.argv[2]) as l:
    print(len(l), "ok")
PY
)"
equal "an index of each shard" 12 "$(find "$T/made" -name '*.psx' | wc -l)"

# Shard 5 is replaced by another of the same size and samples. Labels were 0 .. 239; any of b's would be
# wrong.
files b
check "pack another" penstock-loader pack --max-count 20 "$T/files" "$T/other/t-%03d.tar"
equal "of the same size" "$(stat -c %s "$T/www/t-005.tar")" "$(stat -c %s "$T/other/t-005.tar")"
cp "$T/other/t-005.tar" "$T/www/t-005.tar"
MNT=$T/d
mount_penstock "$ORIGIN/" --cache-dir "$T/cache4"
equal "a stale shard is told at its sample" "100 True 116" "$(load stale "$MNT" '{}' | cut -d ' ' -f 1-3)"
check "... and says what to do" grep -q 't-005.tar.*the shard was changed since' <(load stale "$MNT" '{}')
equal "skipped, the others are all there" "220 1" "$(load skipped "$MNT")"
equal "a sample of it by number" 116 "$(load number "$MNT" 107)"
equal "one of another shard" "[120]" "$(load number "$MNT" 120)"
check_not "verify finds it" penstock-loader index --verify "$MNT/t-005.tar"
check "and says what mends it on a mount" grep \
	-q "t-005.tar.*; if the mount has an old version of one: penstock evict" \
	<(penstock-loader index --verify "$MNT/t-005.tar" 2>&1)
check "the others are sound" penstock-loader index --verify "$MNT/t-004.tar"
