#!/usr/bin/env bash
# hf:// shows a repository of the Hugging Face Hub: pages, revisions, folders, globs and braces, odd names and
# exact bytes. One request finds where a file's bytes are, for any number of readers.
. "$(dirname "$0")/../../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
requires mount attr

start_hub
main=$(commit a)
make_tree "$main"
mkdir -p "$main/data" "$main/odd"
for i in 0 1 2 3 4; do random_file "$main/data/train-0000$i.tar" $((2000000 + i)); done
random_file "$main/data/test-00000.tar" 40000
odd=(" " "+" "=" "~" "%a" "%41" "#" "?" "&" "@" ":" ";" "," "*" "!" "'" "(" ")" "$" "[" "]" "{" "}" "ü" "日本" "a b" "..." "\"")
for name in "${odd[@]}"; do
	echo "small $name" >"$main/odd/$name"
	random_file "$main/odd/$name.bin" 5000
done
sha_manifest "$main" >"$T/manifest"
point main a
tell page-size 7

mount_penstock hf://datasets/acme/shards
equal "all files are listed with their sizes" "$(cd "$main" && find . -type f -printf '%p %s\n' | sort)" \
	"$(cd "$MNT" && find . -type f -printf '%p %s\n' | sort)"
at_least "the listing has several pages" 10 "$(asked HUB GET /tree/)"
check "all files have their bytes" read_tree 1m
check "eight readers at once get the right bytes" read_tree 10k "$MNT" 8
equal "the version is the oid" "\"$(sha256sum "$main/data/train-00000.tar" | cut -d ' ' -f 1)\"" \
	"$(getfattr -n user.penstock.etag --only-values --absolute-names "$MNT/data/train-00000.tar")"
umount_penstock
equal "each file in LFS was asked for once" "$(find "$main" -type f -size +1000c | wc -l)" \
	"$(asked HUB HEAD /resolve/ 302)"
equal "the CDN refused no request" 0 \
	"$(awk '$1 == "CDN" && $4 >= 400' "$hub/requests.log" | wc -l)"

forget requests.log
mount_penstock hf://acme/shards
check "the short form of the source has the same bytes" read_tree 1m
umount_penstock
equal "the short form fetches nothing again" 0 "$(asked CDN GET)"

names() { # WHAT SOURCE NAMES
	mount_penstock "$2"
	equal "$1" "$3" "$(cd "$MNT" && find . -type f | sort | sed 's,^\./,,' | tr '\n' ' ')"
	check "$1: a file's bytes" cmp "$main/data/train-00003.tar" "$(find "$MNT" -name train-00003.tar)"
	umount_penstock
}
all="train-00000.tar train-00001.tar train-00002.tar train-00003.tar train-00004.tar "
names "a folder" hf://datasets/acme/shards/data/ "test-00000.tar $all"
names "a folder without its /" hf://datasets/acme/shards/data "test-00000.tar $all"
names "one file" hf://datasets/acme/shards/data/train-00003.tar "train-00003.tar "
names "a glob" 'hf://datasets/acme/shards/data/train-*.tar' "$all"
names "a glob of all folders" 'hf://datasets/acme/shards/**/train-0000[3].tar' "data/train-00003.tar "
names "braces" 'hf://datasets/acme/shards/data/train-{00002..00003}.tar' "train-00002.tar train-00003.tar "
names "braces of folders" 'hf://datasets/acme/shards/{data,none}/train-00003.*' "data/train-00003.tar "
names "braces with missing names" 'hf://datasets/acme/shards/data/train-{00003..00009}.tar' \
	"train-00003.tar train-00004.tar "
check "the log reports the missing names" grep -q "5 of the names.*data/train-00005.tar" "$T/penstock.log"

other=$(commit b)
random_file "$other/only.tar" 3000
point refs%2Fconvert%2Fparquet b
for rev in @refs/convert/parquet @refs%2Fconvert%2Fparquet "@$(basename "$other")"; do
	mount_penstock "hf://datasets/acme/shards$rev/"
	equal "the revision $rev" only.tar "$(ls "$MNT")"
	check "the bytes of revision $rev" cmp "$other/only.tar" "$MNT/only.tar"
	umount_penstock
done
mount_penstock hf://models/acme/net@refs/convert/parquet
check "a model is read" cmp "$other/only.tar" "$MNT/only.tar"
umount_penstock
mount_penstock hf://models/net@refs/convert/parquet
check "a model without an owner is read, from where the Hub redirects" cmp "$other/only.tar" "$MNT/only.tar"
umount_penstock
