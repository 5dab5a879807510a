#!/usr/bin/env bash
# penstock-loader bench reads photographs from a mount: all samples, cold and warm; its JSON has the fields
# that scripts use.
. "$(dirname "$0")/../../lib.sh"
requires mount loader nginx jq

mkdir -p "$T/www"
"$python" - "$top_srcdir/tests/data/photos" "$T/www" <<'PY'
import glob, io, sys, tarfile
photos = sorted(glob.glob(f"{sys.argv[1]}/*.jpg"))
for shard in range(4):
    with tarfile.open(f"{sys.argv[2]}/shard-{shard:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for i in range(32):
            for ext, data in (("jpg", open(photos[(shard * 7 + i) % len(photos)], "rb").read()), ("cls", b"%d" % i)):
                info = tarfile.TarInfo(f"{shard:03d}-{i:06d}.{ext}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
PY
start_nginx
mount_penstock "$ORIGIN/shard-{000000..000003}.tar"
bench() {
	timeout 60 penstock-loader bench "$MNT/shard-{000000..000003}.tar" --batch 16 --image 64 --epochs 2 \
		--threads 2 --json \
		>"$T/$1.json" 2>"$T/$1.err"
}
check "bench with a cold cache succeeds" bench cold
check "bench with a warm cache succeeds" bench warm
for run in cold warm; do
	equal "$run: all samples of two epochs" 256 "$(jq .samples "$T/$run.json")"
	equal "$run: none skipped" 0 "$(jq .skipped "$T/$run.json")"
	equal "$run: two epochs are reported" 2 "$(jq '.epochs | length' "$T/$run.json")"
	for field in batches seconds samples_per_second samples_per_cpu_second first_batch_seconds \
		bytes_read peak_rss_bytes; do
		check "$run: $field is positive" jq -e ".$field > 0" "$T/$run.json"
	done
done
total=$(du -bc "$T"/www/*.tar | tail -n 1 | cut -f 1)
at_most "the bytes were fetched once" $((total * 102 / 100)) "$(origin_bytes)"
equal "ls lists all samples" 128 "$(penstock-loader ls --json "$MNT/shard-{000000..000003}.tar" | jq -s length)"
