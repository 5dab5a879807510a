#!/usr/bin/env bash
# SOURCE that is a folder of this machine, as file:///dir/ or /dir/, is cached as any other.
. "$(dirname "$0")/../lib.sh"
requires mount

make_tree "$T/data"
for source in "file://$T/data/" "$T/data/"; do
	CACHE=$T/cache${#source}
	check "mounts ${source%%/*}//..." mount_penstock "$source"
	check "with the folder's bytes" read_tree 1m
	equal "and names" "$(cd "$T/data" && find . -type f | sort)" "$(cd "$MNT" && find . -type f | sort)"
	equal "and times" "$(stat -c %Y "$T/data/shard-000001.tar")" "$(stat -c %Y "$MNT/shard-000001.tar")"
	umount_penstock
done

mkdir "$T/outside" "$T/jail"
echo secret >"$T/outside/secret"
echo plain >"$T/jail/plain"
ln -s "$T/outside/secret" "$T/jail/link"
mkfifo "$T/jail/fifo"
CACHE=$T/cache-jail
mount_penstock "$T/jail/"
check "a fifo hangs nobody" timeout 10 ls -lR "$MNT"
check "plain files are there" grep -q plain "$MNT/plain"
