#!/usr/bin/env bash
# Several sources in one mount: each has a folder, nothing is mixed, and credentials go to their own host
# alone.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx jq getfattr

make_tree "$T/www"
mkdir -p "$T/other/deep" "$MNT"
random_file "$T/other/deep/f.bin" 2500000
cp "$T/other/deep/f.bin" "$T/other/g.bin"
start_nginx
check "three sources are mounted" penstock mount "web=$ORIGIN/" "part=$ORIGIN/sub/" "disk=$T/other/" "$MNT" \
	--cache-dir "$CACHE" --log "$T/penstock.log"
equal "each has a folder" "disk part web" "$(cd "$MNT" && echo *)"
check "the first source is right" read_tree 1m "$MNT/web"
check "the second source is right" cmp "$MNT/part/deep/7654321.bin" "$T/www/sub/deep/7654321.bin"
check "the third source is right" diff -r "$MNT/disk" "$T/other"
equal "each file has its own inode number" 0 "$(find "$MNT" -printf '%i\n' | sort | uniq -d | wc -l)"
equal "readdir and stat show the same inode numbers" "" \
	"$("$python" -c 'import os, sys
for d, _, _ in os.walk(sys.argv[1]):
    for e in os.scandir(d):
        if e.inode() != os.stat(e.path, follow_symlinks=False).st_ino: print(e.path)' "$MNT")"
equal "the root is a folder with mode 555" "directory 555" "$(stat -c '%F %a' "$MNT" | xargs)"
check_not "a name that no source has is not found" test -e "$MNT/nothing"
check_not "a name of another source is not found" test -e "$MNT/disk/sub"
equal "a file's URL is its source's" "$ORIGIN/sub/deep/1.bin" \
	"$(getfattr --only-values -n user.penstock.url "$MNT/part/deep/1.bin")"
equal "the root has no attributes" "" "$(getfattr -d "$MNT" 2>/dev/null)"
equal "the statistics list each source" "web part disk" "$(stats '.mounts[0].sources[].name' | xargs)"
equal "the statistics have the sum of files" "$(find "$MNT" -type f | wc -l)" "$(stats '.mounts[0].files')"
equal "mountinfo has all sources" 1 "$(grep -c "web=$ORIGIN/.*disk=file://$T/other/" /proc/self/mountinfo)"
check "warm fetches all sources" penstock warm "$MNT" -q
equal "a file of the last source is cached" \
	cached "$(getfattr --only-values -n user.penstock.state "$MNT/disk/deep/f.bin")"
check "statfs answers" df "$MNT"
check "umount succeeds" umount_penstock

refused() { # WHAT PATTERN ARGUMENT...
	local what=$1 pattern=$2 rc=0
	shift 2
	timeout 20 penstock mount "$@" "$MNT" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
	equal "$what" "2 1 1" "$rc $(wc -l <"$T/out") $(grep -cE -- "$pattern" "$T/out")"
}
refused "two sources of one name are refused" "two sources are named 'a'" "a=$ORIGIN/" "a=$T/other/"
refused "the name .penstock is refused" "not a name for a folder" ".penstock=$ORIGIN/" "a=$T/other/"
refused "a source without a name is refused" "need names" "a=$ORIGIN/" "$T/other/"
refused "credentials that would be sent to two hosts are refused" "every host" "a=$ORIGIN/" "b=$ORIGIN_TLS/" \
	--header "X-Token: secret"
refused "an invalid source is refused" "neither a URL" "a=$ORIGIN/" b=nonsense
rc=0
penstock mount "a=$ORIGIN/" "b=$ORIGIN/nothing/" "$MNT" --cache-dir "$CACHE" >"$T/out" 2>&1 || rc=$?
equal "the error of a missing source has its name" "1 1" "$rc $(grep -c "b: .*404" "$T/out")"
check_not "the missing source leaves no mount" is_mounted
check "credentials for one host may be given" penstock mount "a=$ORIGIN/token/" "b=$ORIGIN/token/sub/" "$MNT" \
	--cache-dir "$CACHE" --header "X-Token: secret"
check "both sources are served with the credentials" \
	cmp "$MNT/a/sub/deep/1048577.bin" "$MNT/b/deep/1048577.bin"
check "the mount with credentials is unmounted" penstock umount "$MNT"
check "a single source may have a name" penstock mount "only=$T/other/" "$MNT" --cache-dir "$CACHE"
check "a single source with a name has its folder" cmp "$MNT/only/g.bin" "$T/other/g.bin"
check "the single source is unmounted" umount_penstock
