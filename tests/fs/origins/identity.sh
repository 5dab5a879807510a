#!/usr/bin/env bash
# Mounts of one cache with different credentials: each one uses its own, sees the names that the origin shows
# to them, and reads what the origin lets them read, also if other mounts have cached it.
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../cloud/cloud.sh"
requires mount jq

start_cloud
cloud_data
echo 1 >"$T/cloud/page" # objects a page of the listing: the bucket has 4
cat >"$T/cloud/keys" <<-'KEYS'
	JOBONE hush/one session/one
	JOBTWO hush/two session/two
	LISTER hush/lister session/lister
	READER hush/reader session/reader
	NOBODY hush/nobody session/nobody
	THIRD hush/third session/third
KEYS
cat >"$T/cloud/deny" <<-'DENY'
	NOBODY list
	NOBODY get
	LISTER get
	READER get train/shard-000001
DENY
mkdir "$T/m1" "$T/m2" "$T/m3"
file=shard-000000.tar
sum=$(sha256sum <"$T/cloud/bucket/train/$file")

as() { # KEY COMMAND...: with the keys of a session
	local key=$1
	shift
	AWS_ACCESS_KEY_ID=$key AWS_SECRET_ACCESS_KEY=${SECRET-$(awk -v k="$key" '$1 == k {print $2}' "$T/cloud/keys.all")} \
		AWS_SESSION_TOKEN=$(awk -v k="$key" '$1 == k {print $3}' "$T/cloud/keys.all") "$@"
}
cp "$T/cloud/keys" "$T/cloud/keys.all"
mount_at() { # DIR SOURCE OPTION...
	local MNT=$1
	shift
	mount_penstock "$@" --endpoint "$CLOUD" --timeout 10s
}
unmount_at() { local MNT=$1 && umount_penstock; }
seen() { # KEY PATTERN: counts requests of that key
	grep -Ec -- "^$1 .*$2" "$T/cloud/who.log" || true
}
forget_seen() { : >"$T/cloud/who.log"; }
reads() { [[ $(sha256sum <"$1/${2-$file}") == "${3-$sum}" ]]; }
B=s3://bucket/train/

# A mount that may not list gets an error, whatever others have mounted.
check "a first mount" as JOBONE mount_at "$T/m1" $B
check "the first mount reads a file" reads "$T/m1"
check_not "a second one that may not list is refused" as NOBODY mount_at "$T/m2" $B
check "the log has the store's words" grep -q "list.*AccessDenied" "$T/penstock.log"
at_least "the store was asked with that key" 1 "$(seen NOBODY ' 403')"
SECRET=wrong check_not "a mount with the right key and a wrong secret is refused" \
	as JOBONE mount_at "$T/m2" $B

# Mounts with the same credentials share the dataset: it is listed again, and has one copy.
forget_seen
check "the same credentials mount it once more" as JOBONE mount_at "$T/m2" $B
check "the mount with the same credentials reads" reads "$T/m2"
equal "the mount with the same credentials asks for no object" 0 "$(seen . '/shard')"
check "the mount with the same credentials reads another file" \
	reads "$T/m2" shard-000002.tar "$(sha256sum <"$T/cloud/bucket/train/shard-000002.tar")"
unmount_at "$T/m2"

# A newer session of the same job: lists with its own key.
forget_seen
check "another session of the job mounts" as JOBTWO mount_at "$T/m2" $B
equal "the other session sees all names" "$(ls "$T/m1")" "$(ls "$T/m2")"
at_least "the other session lists itself" 1 "$(seen JOBTWO 'GET /bucket\?.* 200')"
# Four pages of one key each, and at most two guesses where the listing may be split.
at_most "the other session reads the listing twice at most: to compare names, and to list" \
	12 "$(seen JOBTWO 'GET /bucket\?.* 200')"
check "the other session reads a cached file" reads "$T/m2"
forget_seen
check "the other session reads a file that is not cached" reads "$T/m2" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
at_least "the other session fetches the file with its own key" 1 "$(seen JOBTWO 'GET .*shard-000001.* 206')"
equal "the other session uses no other key" 0 "$(seen JOBONE '')"

# The first session ends: only its mount fails.
sed -i '/^JOBONE/d' "$T/cloud/keys"
check "the cache is emptied" penstock evict "$T/m2"
drop_page_cache
check_not "a dead session's mount cannot fetch any more" reads "$T/m1"
check "another session's mount can fetch" reads "$T/m2"
unmount_at "$T/m1"
unmount_at "$T/m2"
cp "$T/cloud/keys.all" "$T/cloud/keys"
no_secrets hush session/

# What other mounts have cached can be read with the right to read it at the origin.
rm -rf "$CACHE"
check "a job mounts to fill the cache" as JOBONE mount_at "$T/m1" $B --grant-ttl 1h
check "the job fills the cache" read_tree 1m "$T/m1"
forget_seen
check "credentials that may list and not read can mount" as LISTER mount_at "$T/m2" $B
equal "credentials that may list and not read show the names" "$(ls "$T/m1")" "$(ls "$T/m2")"
check_not "credentials that may list and not read get nothing from the cache" reads "$T/m2"
check_not "credentials that may list and not read get nothing through a mapping" "$python" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:10])' "$T/m2/$file"
ps_run sha256sum "$T/m2/$file"
check "the error is Permission denied" grep -q 'Permission denied' <<<"$out"
at_least "the origin refused the request" 1 "$(seen LISTER '(HEAD|GET) .*shard-000000.* 403')"
check "the job's mount still reads" reads "$T/m1"
unmount_at "$T/m2"

forget_seen
check "credentials that may read one shard of two can mount" as READER mount_at "$T/m2" $B
check "credentials for one shard read the allowed shard" reads "$T/m2"
equal "no byte of the allowed shard is fetched" 0 "$(seen READER 'GET /bucket/train/shard-000000')"
equal "the allowed shard needs one request" 1 "$(seen READER '.* /bucket/train/shard-000000.* 200')"
check_not "credentials for one shard cannot read the other shard" reads "$T/m2" shard-000001.tar
check "credentials for one shard read the allowed shard again" reads "$T/m2"
equal "reading it again needs no request" 1 "$(seen READER '.* /bucket/train/shard-000000')"
unmount_at "$T/m2"

forget_seen
check "another session of the job mounts the cached files" as JOBTWO mount_at "$T/m2" $B
check "the session on the cached files reads all files" read_tree 1m "$T/m2"
equal "the session on the cached files fetches no byte" 0 "$(seen JOBTWO 'GET .*/train.* 20[06]')"
equal "the session on the cached files sends one request a file" 4 "$(seen JOBTWO 'HEAD .* 200')"

# Rights that end: open files can still be read, the next open fails.
exec 9<"$T/m2/$file"
echo "JOBTWO get" >>"$T/cloud/deny"
check "a grant is valid for its time" reads "$T/m2"
unmount_at "$T/m1"
exec 9<&-
unmount_at "$T/m2"
check "the session mounts with --grant-ttl open" as JOBTWO mount_at "$T/m2" $B --grant-ttl open
check_not "an open without the right fails" reads "$T/m2"
sed -i '/^JOBTWO/d' "$T/cloud/deny"
check "an open with the right again succeeds" reads "$T/m2"
exec 9<"$T/m2/$file"
echo "JOBTWO get" >>"$T/cloud/deny"
check_not "a new open fails when the right ends" reads "$T/m2"
equal "an open file can still be read" "$sum" "$(sha256sum <&9)"
exec 9<&-
unmount_at "$T/m2"
sed -i '/^JOBTWO/d' "$T/cloud/deny"

# Without the origin, a mount with a grant can still read, another one cannot.
check "a mount with the origin" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1s
check "a mount with the origin reads a file" reads "$T/m2"
unmount_at "$T/m2"
touch "$T/cloud/hang.bucket"
check "the same identity mounts without the origin" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1s --timeout 3s
sleep 1.1
check "without the origin it reads what it has read before" reads "$T/m2"
check_not "without the origin another identity cannot mount" as THIRD mount_at "$T/m1" $B --timeout 3s
check "the log says that it has never listed the source" \
	grep -q 'these credentials have not listed this source before' "$T/penstock.log"
rm "$T/cloud/hang.bucket"
check "with the origin the other identity mounts" as THIRD mount_at "$T/m1" $B
check "the other identity reads a file" reads "$T/m1" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
touch "$T/cloud/hang.bucket"
check_not "without the origin it cannot read a file that is new to it" reads "$T/m1"
check "without the origin it reads the file that it has read" reads "$T/m1" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
rm "$T/cloud/hang.bucket"
unmount_at "$T/m1"
unmount_at "$T/m2"
no_secrets hush session/

# A mount's own proxy may lie: its answers prove nothing about bytes that came by another route.
cat >"$T/liar.py" <<'PY'
import http.server, sys, urllib.request
class Liar(http.server.BaseHTTPRequestHandler):  # lets listings through, and allows all else
    def do_GET(self):
        if "list-type" in self.path:
            headers = {k: v for k, v in self.headers.items()}
            body = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                urllib.request.Request(self.path, headers=headers)).read()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_response(200)
        self.send_header("Content-Length", sys.argv[2])
        self.send_header("ETag", sys.argv[3])
        self.end_headers()
    do_HEAD = do_GET
    def log_message(self, *args):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Liar)
with open(sys.argv[1] + ".new", "w") as f:
    f.write(str(server.server_port))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
PY
"$python" "$T/liar.py" "$T/liar.port" "$(stat -c %s "$T/cloud/bucket/train/$file")" \
	"\"$(md5sum <"$T/cloud/bucket/train/$file" | cut -d ' ' -f 1)\"" >"$T/liar.log" 2>&1 &
wait_until 20 test -s "$T/liar.port" || die "the proxy starts" "$(cat "$T/liar.log")"
check "a job mounts without a proxy" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1h
check "a job without a proxy reads a file" reads "$T/m2"
check "credentials that may only list mount through their own proxy" as LISTER mount_at "$T/m1" $B \
	--proxy "http://127.0.0.1:$(cat "$T/liar.port")"
check "the mount through the proxy shows names" test -e "$T/m1/$file"
check_not "the mount through the proxy cannot read bytes that came without the proxy" reads "$T/m1"
unmount_at "$T/m1"
unmount_at "$T/m2"

# A container needs only the socket of the cache folder.
check "a job mounts outside the container" as JOBTWO mount_at "$T/m2" $B
check "the job outside the container reads" reads "$T/m2"
mkdir "$T/only"
touch "$T/only/control"
# shellcheck disable=SC2016
ps_run as JOBONE unshare -m bash -ec 'mount --bind "$1/control" "$2/control"
	penstock mount s3://bucket/train/ "$3" --cache-dir "$2" --endpoint "$4"
	sha256sum <"$3/$5"
	penstock umount "$3"' - "$CACHE" "$T/only" "$T/m1" "$CLOUD" "$file"
if [[ $out == *"cannot change root filesystem propagation"* ]]; then # in a chroot
	skip "a process that sees only the socket mounts and reads" "no mount namespace can be made"
else
	equal "a process that sees only the socket mounts and reads" "0 $sum" "$rc $out"
fi
equal "the process's view of the cache folder has only the socket" control "$(ls "$T/only")"
unmount_at "$T/m2"
no_secrets hush session/
