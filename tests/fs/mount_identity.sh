#!/usr/bin/env bash
# Mounts of one cache with different credentials: each asks with its own, sees the names that the origin shows it, and reads
# what the origin lets it read, also of what others have brought into the cache.
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

# Who may not list is told so, whatever others have mounted.
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
at_most "once" 5 "$(seen JOBTWO 'GET /bucket\?.* 200')"
check "and reads" reads "$T/m2"
forget_seen
check "what is not in the cache yet, too" reads "$T/m2" shard-000001.tar "$(sha256sum <"$T/cloud/bucket/train/shard-000001.tar")"
at_least "with its own key" 1 "$(seen JOBTWO 'GET .*shard-000001.* 206')"
equal "and no other" 0 "$(seen JOBONE '')"

# The first session ends: its mount alone fails.
sed -i '/^JOBONE/d' "$T/cloud/keys"
for dir in m1 m2; do
	penstock evict "$T/$dir" >"$T/evict.out" 2>&1
done
drop_page_cache
check_not "a dead session's mount cannot fetch any more" reads "$T/m1"
check "another session's can" reads "$T/m2"
unmount_at "$T/m1"
unmount_at "$T/m2"
cp "$T/cloud/keys.all" "$T/cloud/keys"
no_secrets hush session/
