#!/usr/bin/env bash
# SOURCE that is a folder of this machine, as file:///dir/ or /dir/, is cached as any other.
. "$(dirname "$0")/../../lib.sh"
requires mount

make_tree "$T/data"
for source in "file://$T/data/" "$T/data/"; do
	CACHE=$T/cache${#source}
	check "a mount of ${source%%/*}//... succeeds" mount_penstock "$source"
	check "files have the folder's bytes" read_tree 1m
	equal "files have the folder's names" \
		"$(cd "$T/data" && find . -type f | sort)" "$(cd "$MNT" && find . -type f | sort)"
	equal "files have the folder's times" \
		"$(stat -c %Y "$T/data/shard-000001.tar")" "$(stat -c %Y "$MNT/shard-000001.tar")"
	umount_penstock
done

mkdir "$T/outside" "$T/jail"
echo secret >"$T/outside/secret"
echo plain >"$T/jail/plain"
ln -s "$T/outside/secret" "$T/jail/link"
mkfifo "$T/jail/fifo"
CACHE=$T/cache-jail
mount_penstock "$T/jail/"
check "ls of a folder with a fifo does not hang" timeout 10 ls -lR "$MNT"
check "plain files are shown" grep -q plain "$MNT/plain"
