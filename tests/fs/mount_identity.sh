#!/usr/bin/env bash
# Mounts of one cache with different credentials: each asks with its own, sees the names that the origin shows
# it, and reads what the origin lets it read, also of what others have brought into the cache.
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/../cloud/cloud.sh"
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
seen() { # KEY PATTERN: requests of that key
	grep -Ec -- "^$1 .*$2" "$T/cloud/who.log" || true
}
forget_seen() { : >"$T/cloud/who.log"; }
reads() { [[ $(sha256sum <"$1/${2-$file}") == "${3-$sum}" ]]; }
B=s3://bucket/train/

# A mount that may not list gets an error, whatever others have mounted.
check "a first mount" as JOBONE mount_at "$T/m1" $B
check "reads" reads "$T/m1"
check_not "a second one that may not list is refused" as NOBODY mount_at "$T/m2" $B
check "in the store's words" grep -q "list.*AccessDenied" "$T/penstock.log"
at_least "which was asked under its key" 1 "$(seen NOBODY ' 403')"
SECRET=wrong check_not "so is one with the right key and a wrong secret" as JOBONE mount_at "$T/m2" $B

# The same credentials share the dataset: it is listed again, and has one copy.
forget_seen
check "the same credentials mount it once more" as JOBONE mount_at "$T/m2" $B
check "and read" reads "$T/m2"
equal "no object was asked for" 0 "$(seen . '/shard')"
check "other file" reads "$T/m2" shard-000002.tar "$(sha256sum <"$T/cloud/bucket/train/shard-000002.tar")"
unmount_at "$T/m2"

# A newer session of the same job: lists with its own key.
forget_seen
check "another session of the job mounts it" as JOBTWO mount_at "$T/m2" $B
equal "which shows all names" "$(ls "$T/m1")" "$(ls "$T/m2")"
at_least "which it lists itself" 1 "$(seen JOBTWO 'GET /bucket\?.* 200')"
at_most "once, and before that as much as is compared" 8 "$(seen JOBTWO 'GET /bucket\?.* 200')"
check "and reads" reads "$T/m2"
forget_seen
check "what is not in the cache yet, too" reads "$T/m2" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
at_least "with its own key" 1 "$(seen JOBTWO 'GET .*shard-000001.* 206')"
equal "and no other" 0 "$(seen JOBONE '')"

# The first session ends: its mount alone fails.
sed -i '/^JOBONE/d' "$T/cloud/keys"
check "the cache is emptied" penstock evict "$T/m2"
drop_page_cache
check_not "a dead session's mount cannot fetch any more" reads "$T/m1"
check "another session's can" reads "$T/m2"
unmount_at "$T/m1"
unmount_at "$T/m2"
cp "$T/cloud/keys.all" "$T/cloud/keys"
no_secrets hush session/

# Bytes: what others have brought into the cache is readable with the right to read it at the origin.
rm -rf "$CACHE"
check "a job mounts" as JOBONE mount_at "$T/m1" $B --grant-ttl 1h
check "and fills the cache" read_tree 1m "$T/m1"
forget_seen
check "who may list, and not read, mounts" as LISTER mount_at "$T/m2" $B
equal "and sees the names" "$(ls "$T/m1")" "$(ls "$T/m2")"
check_not "but reads nothing of the cache" reads "$T/m2"
check_not "not through a mapping either" "$python" -c 'import mmap, sys
f = open(sys.argv[1], "rb")
print(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)[:10])' "$T/m2/$file"
ps_run sha256sum "$T/m2/$file"
check "for lack of permission" grep -q 'Permission denied' <<<"$out"
at_least "as the origin said" 1 "$(seen LISTER '(HEAD|GET) .*shard-000000.* 403')"
check "the job's mount is none the worse" reads "$T/m1"
unmount_at "$T/m2"

forget_seen
check "who may read one shard and not the other mounts" as READER mount_at "$T/m2" $B
check "and reads the one" reads "$T/m2"
equal "of which not a byte was fetched" 0 "$(seen READER 'GET /bucket/train/shard-000000')"
equal "after one request" 1 "$(seen READER '.* /bucket/train/shard-000000.* 200')"
check_not "and not the other" reads "$T/m2" shard-000001.tar
check "reads the one again" reads "$T/m2"
equal "without another request" 1 "$(seen READER '.* /bucket/train/shard-000000')"
unmount_at "$T/m2"

forget_seen
check "another session of the job mounts" as JOBTWO mount_at "$T/m2" $B
check "and reads all of it" read_tree 1m "$T/m2"
equal "of which no byte was fetched" 0 "$(seen JOBTWO 'GET .*/train.* 20[06]')"
equal "after a request a file" 4 "$(seen JOBTWO 'HEAD .* 200')"

# Rights that end: what is open goes on, the next open does not.
exec 9<"$T/m2/$file"
echo "JOBTWO get" >>"$T/cloud/deny"
check "a grant holds for its time" reads "$T/m2"
unmount_at "$T/m1"
exec 9<&-
unmount_at "$T/m2"
check "the same session mounts for a short time" as JOBTWO mount_at "$T/m2" $B --grant-ttl open
check_not "and the origin is asked before the next open" reads "$T/m2"
sed -i '/^JOBTWO/d' "$T/cloud/deny"
check "and again" reads "$T/m2"
exec 9<"$T/m2/$file"
echo "JOBTWO get" >>"$T/cloud/deny"
check_not "a new open fails" reads "$T/m2"
equal "what is open goes on" "$sum" "$(sha256sum <&9)"
exec 9<&-
unmount_at "$T/m2"
sed -i '/^JOBTWO/d' "$T/cloud/deny"

# Without the origin: a mount with a grant continues to read, another does not.
check "with the origin" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1s
check "a file is read" reads "$T/m2"
unmount_at "$T/m2"
touch "$T/cloud/hang.bucket"
check "the same identity mounts without it" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1s --timeout 3s
sleep 1.1
check "and reads what it has read before" reads "$T/m2"
check_not "another identity is refused: it has never listed that" as THIRD mount_at "$T/m1" $B --timeout 3s
check "which it is told" grep -q 'these credentials have not listed it before' "$T/penstock.log"
rm "$T/cloud/hang.bucket"
check "with the origin, it mounts" as THIRD mount_at "$T/m1" $B
check "and reads a file" reads "$T/m1" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
touch "$T/cloud/hang.bucket"
check_not "and without, reads nothing that it has not read" reads "$T/m1"
check "but what it has" reads "$T/m1" shard-000001.tar \
	"$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
rm "$T/cloud/hang.bucket"
unmount_at "$T/m1"
unmount_at "$T/m2"
no_secrets hush session/

# A mount's own proxy may answer anything: it vouches for nothing that came without it.
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
check "a job mounts" as JOBTWO mount_at "$T/m2" $B --grant-ttl 1h
check "and reads" reads "$T/m2"
check "who may list mounts through a proxy of its own" as LISTER mount_at "$T/m1" $B \
	--proxy "http://127.0.0.1:$(cat "$T/liar.port")"
check "and sees names" test -e "$T/m1/$file"
check_not "but no bytes that came past it" reads "$T/m1"
unmount_at "$T/m1"
unmount_at "$T/m2"

# Of the folder, a container needs the socket only.
check "a job mounts" as JOBTWO mount_at "$T/m2" $B
check "and reads" reads "$T/m2"
mkdir "$T/only"
touch "$T/only/control"
# shellcheck disable=SC2016
ps_run as JOBONE unshare -m bash -ec 'mount --bind "$1/control" "$2/control"
	penstock mount s3://bucket/train/ "$3" --cache-dir "$2" --endpoint "$4"
	sha256sum <"$3/$5"
	penstock umount "$3"' - "$CACHE" "$T/only" "$T/m1" "$CLOUD" "$file"
if [[ $out == *"cannot change root filesystem propagation"* ]]; then # in a chroot
	skip "who sees the socket alone mounts and reads" "no mount namespace of its own can be had"
else
	equal "who sees the socket alone mounts and reads" "0 $sum" "$rc $out"
fi
equal "and sees no data" control "$(ls "$T/only")"
unmount_at "$T/m2"
no_secrets hush session/
