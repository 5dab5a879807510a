#!/usr/bin/env bash
# A real S3 server with tenants that have buckets of the same name: mounts of one cache show each tenant its
# own bucket.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
. "$(dirname "$0")/../../rgw.sh"
requires mount
requires_rgw

as() { # TENANT COMMAND...
	local who=$1
	shift
	AWS_ACCESS_KEY_ID=KEYOFTENANT$who AWS_SECRET_ACCESS_KEY=secretoftenant$who "$@"
}
put() { as "$1" "$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" put data "$2" "$3"; }
mount_at() { # DIR
	MNT=$1 mount_penstock s3://data/ --endpoint "$S3" --timeout 10s
}
names() { (cd "$1" && echo *); }
unmount_at() { local MNT=$1 && umount_penstock; }

start_rgw
for tenant in red blue; do
	rgw_admin user create --tenant=$tenant --uid=user --display-name=$tenant --access-key=KEYOFTENANT$tenant \
		--secret-key=secretoftenant$tenant >/dev/null || die "a tenant's user is made"
	put $tenant $tenant.txt "of $tenant"
	put $tenant common.txt "of $tenant, and so on"
done
mkdir "$T/red" "$T/blue"
check "a tenant mounts its bucket" as red mount_at "$T/red"
equal "the tenant sees its names" "common.txt red.txt" "$(names "$T/red")"
equal "the tenant reads its file" "of red, and so on" "$(cat "$T/red/common.txt")"
check "another tenant mounts its own of the same name" as blue mount_at "$T/blue"
equal "the other tenant sees its own names" "blue.txt common.txt" "$(names "$T/blue")"
equal "the other tenant reads its own file" "of blue, and so on" "$(cat "$T/blue/common.txt")"
equal "the first tenant still sees its own names" "common.txt red.txt" "$(names "$T/red")"
equal "the first tenant reads its own files" \
	"of red, of red, and so on" "$(cat "$T/red/red.txt"), $(cat "$T/red/common.txt")"
unmount_at "$T/red"
unmount_at "$T/blue"
for tenant in blue red; do
	check "$tenant mounts again" as $tenant mount_at "$T/$tenant"
	equal "$tenant sees its own names" \
		"$(printf '%s\n' common.txt $tenant.txt | sort | xargs)" "$(names "$T/$tenant")"
done
unmount_at "$T/red"
unmount_at "$T/blue"

# Users of one tenant have one bucket.
rgw_admin user create --tenant=red --uid=other --display-name=other --access-key=KEYOFTENANTother \
	--secret-key=secretoftenantother >/dev/null || die "another user is made"
as red "$python" "$top_srcdir/tests/fs/origins/s3_bucket.py" policy data '{"Version": "2012-10-17", "Statement": [
	{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::red:user/other"}, "Action": ["s3:ListBucket", "s3:GetObject"],
	"Resource": ["arn:aws:s3::red:data", "arn:aws:s3::red:data/*"]}]}' || die "the other user may read the bucket"
mkdir "$T/other"
check "a tenant mounts before its other user" as red mount_at "$T/red"
check "another user of the tenant mounts" as other mount_at "$T/other"
equal "the other user reads the same bytes" "of red, and so on" "$(cat "$T/other/common.txt")"
equal "the other user has the same inode numbers" \
	"$(stat -c %i "$T/red/common.txt")" "$(stat -c %i "$T/other/common.txt")"
unmount_at "$T/red"
unmount_at "$T/other"
