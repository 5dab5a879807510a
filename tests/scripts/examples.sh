#!/usr/bin/env bash
# Every command in README.md, docs/guides/, the EXAMPLES of the manual pages and --help runs as printed, with
# servers on loopback in place of those that it names. A command that cannot run here has a row in
# `exceptions`, with the reason.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-400}
. "$(dirname "$0")/../lib.sh"
. "$top_srcdir/tests/fs/origins/hub_lib.sh"
. "$top_srcdir/tests/cloud/cloud.sh"
requires mount loader nginx jq root python:PIL mount-namespace
# `penstock status` lists every mount: here only those of this test.
[[ ${1-} == inside ]] || exec unshare -m --propagation private bash "$0" inside
while read -r _ where kind; do
	[[ $kind != fuse.penstock ]] || umount -l "$where"
done < <(ps_mounts_below "")

# COMMAND <tab> REASON
cat >"$T/exceptions" <<'ROWS'
penstock plan /data/train </tmp/epoch-1	lasts until it is ended; tests/fs/prefetch/plan_command.sh
systemctl enable --now "penstockd@$(systemd-escape -p /nvme/penstock).service"	needs the unit; tests/fs/daemon/serve.sh
penstock status /data/train | grep sandbox	needs a mount there; tests/fs/daemon/sandbox.sh
penstock upgrade --cache-dir /nvme/penstock	needs a daemon there; tests/fs/daemon/takeover_kept.sh
scripts/demo	a build of its own; the continuous integration runs it
scripts/check	runs this test
scripts/setup-debian --build-only	installs packages
scripts/wheel wheel/ && pip install wheel/penstock-*.whl	needs a package index; scripts/wheel --test
scripts/deb packages/ && sudo apt install ./packages/*.deb	installs; scripts/deb --test
./bootstrap && ./configure && make && sudo make install && sudo ldconfig	installs
sudo ln -s /usr/local/sbin/mount.penstock /sbin/	changes /sbin
penstock-loader pack --from 'data/*.parquet' image.bytes label 'train-%06d.tar'	needs pyarrow; python_parquet_test
penstock-loader tokenize --tokenizer tokenizer.json --eos '<|endoftext|>' 'web/*.jsonl' tokens	needs tokenizers; python_tokenize_test
penstock-loader tokenize --tokenizer tokenizer.json --eos '</s>' --column content code.parquet tokens	needs tokenizers; python_tokenize_test
torchrun --nproc-per-node 8 train.py --train /data/train --val /data/val	needs a dataset; python_docs_test runs the program
penstock-loader bench --device cuda --step-ms 50 --batch 256 'train-{000..127}.tar'	needs a GPU
ROWS

# What replaces names in the examples: PART <tab> REPLACEMENT; the first match is used.
places() {
	cat <<-PLACES
		https://data.example.org/imagenet/	$ORIGIN/imagenet/
		https://example.org/	$ORIGIN/
		https://other.example.org/set/	$ORIGIN/token/val/
		https://minio.example.org:9000	$CLOUD
		hf://datasets/OWNER/NAME@v2	hf://datasets/acme/shards@v2
		/etc/penstock/	$T/etc/
		/nvme/	$T/nvme/
		/tmp/	$T/tmp/
		/data/train	$T/data/train
		/data/imagenet	$T/data/imagenet
		/data/private	$T/data/private
		/mnt/data/	$T/data/local/
		mount NAME	mount imagenet
		MOUNTPOINT	$T/data/imagenet
		IDX	$T/indexes
		pack DIR	pack photos
	PLACES
}
here() {
	"$python" -c 'import re, sys
places = dict(line.rstrip("\n").split("\t") for line in open(sys.argv[1]))
whole = r"(?<![^\s@=\x22\x27])"  # a path from its beginning, a name as a word
parts = "|".join(whole * (not p.startswith("http")) + re.escape(p) for p in places)
sys.stdout.write(re.sub(parts, lambda m: places[m[0]], sys.stdin.read()))' <(places)
}

# Joins continued lines, and removes comments: one command a line.
joined() { sed -e ':a' -e '/[\\|]$/{N;s/ *\\\n */ /;s/|\n */| /;ta}' | sed -E 's/ +# .*//; s/^ +//; /^$/d'; }
roff() { sed -E 's/\\\(aq/'"'"'/g; s/\\e/\\/g; s/\\-/-/g'; }
# Prints the commands of indented blocks, except blocks of Python, of penstock.conf, and those with output.
block_commands() {
	awk '/^```/ {fence = !fence} fence || !/^    / {block = 0; next}
	!block {block = 1; other = /^    (import |dataset = |\[|\$ )/}
	!other' "$1" | joined
}
page_examples() {
	awk '/^\.SH/ {on = /EXAMPLE/} on && /^\.nf/ {text = 1; next} /^\.fi/ {text = 0} on && text' "$1" |
		roff | joined | grep -v '^#'
}
block() { # BEGINNING FILE: prints the indented block with a line that begins with BEGINNING
	awk -v begin="$1" '/^    / {text = text substr($0, 5) "\n"; if (index($0, "    " begin) == 1) found = 1; next}
		{if (found) exit; text = ""} END {printf "%s", text}' "$top_srcdir/$2"
}

# -- What the examples name ----------------------------------------------------------------------------------

export PENSTOCK_CACHE_DIR=$T/cache/default # not this machine's own cache
start_cloud
start_hub
mkdir -p "$T"/{www/{train,val,imagenet},nvme,tmp/both,data/{train,imagenet,private,local},etc,work/imagenet/train}
mkdir -p "$T"/work/{data,photos,images,labels} "$T/cloud/bucket/"{imagenet/val,train}
"$python" - "$T/one.tar" "$top_srcdir"/tests/data/photos/*_00.jpg <<'PY'
import io, sys, tarfile
with tarfile.open(sys.argv[1], "w", format=tarfile.USTAR_FORMAT) as tar:
    for key, photo in (("n01440764/9", sys.argv[2]), ("n01440764/10", sys.argv[-1])):
        photo = open(photo, "rb").read()
        for suffix, data in (("jpg", photo), ("cls", b"7"), ("json", b'{"caption": "fish", "height": 375}')):
            info = tarfile.TarInfo(key + "." + suffix)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
PY
shards() { for name; do ln "$T/one.tar" "$name"; done; }
shards "$T"/www/train/shard-{000000..000255}.tar "$T"/www/imagenet/train-{000000..001023}.tar \
	"$T"/www/val/{a,b}.tar
shards "$T"/cloud/bucket/{imagenet/val/x.tar,imagenet/train.tar,train/x.tar}
shards "$T"/data/local/train-{000..127}.tar \
	"$T"/work/{data/train-{000..127},train-{000..127},val,big,all-0,all-1}.tar
for class in cat dog; do
	mkdir "$T/work/imagenet/train/$class"
	for photo in "$top_srcdir"/tests/data/photos/*_00.jpg; do cp "$photo" \
		"$T/work/imagenet/train/$class/"; done
done
cp -r "$T/work/imagenet/train" "$T/work/imagenet/val"
cp -r "$T/work/imagenet/train" "$T/work/pictures"
cp "$T"/work/imagenet/train/cat/* "$T/work/photos/"
cp "$T"/work/imagenet/train/cat/* "$T/work/images/"
for photo in "$T"/work/images/*; do echo '{}' >"$T/work/labels/$(basename "$photo" .jpg).json"; done
echo "a song" >"$T/work/song.flac"
mkdir -p "$(commit a)/data"
shards "$(commit a)/data/train-00000.tar"
point v2 a
start_nginx

echo "AKIAEXAMPLE hush" >"$T/cloud/keys"
export AWS_ACCESS_KEY_ID=AKIAEXAMPLE AWS_SECRET_ACCESS_KEY=hush AWS_REGION=us-east-1 \
	AWS_ENDPOINT_URL_S3=$CLOUD
printf '[training]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key = hush\n' >"$HOME/.aws/credentials"
export STORAGE_EMULATOR_HOST=$CLOUD GCE_METADATA_HOST=$CLOUD_HOST NO_GCE_CHECK=
echo "X-Token: secret" >"$T/etc/private.header"
chmod 600 "$T/etc/private.header" "$HOME/.aws/credentials"
export PENSTOCK_CONFIG=$T/penstock.conf # not this machine's own; its caches are in $T
printf '[defaults]\ncache-dir = %s\nlog = %s\n' "$T/default-cache" "$T/penstock.log" >"$T/defaults"
unmount_all() {
	local where
	while read -r _ where _; do penstock umount "$where" ||
		true; done < <(ps_mounts_below "$T") # a mount that stays makes the next one fail
}

# -- Running them --------------------------------------------------------------------------------------------

: >"$T/used"
# run_example WHERE COMMAND: runs the command in $T/run, a copy of $T/work. The copy is made again for each
# `pack`, and for each command outside of pages in Markdown.
run_example() {
	local where=$1 command=$2 row
	if row=$(grep -F -- "$command	" "$T/exceptions" | awk -F '\t' -v c="$command" '$1 == c {print $2; exit}') && [[ $row ]]; then
		echo "$command" >>"$T/used"
		skip "$where: $command" "$row"
		return
	fi
	[[ $command != *"penstock mount"* ]] || unmount_all
	[[ $where == *.md && $command != *" pack "* ]] || fresh
	if [[ $command == *"doctor --machine"* ]]; then # exit status 1: the machine is slow, or small
		check "$where: $command" grep -q 'written$' <(bash -c "$(here <<<"$command")" || true)
		return
	fi
	check "$where: $command" bash -c "cd '$T/run' && $(here <<<"$command")"
}
# run_shown WHERE LINE: runs a command, or a line of fstab as mount(8) would.
run_shown() {
	if [[ $2 =~ ^([^ ]+)\ (/[^ ]+)\ penstock\ ([^ ]+)\ 0\ 0$ ]]; then
		run_example "$1" "penstock mount ${BASH_REMATCH[1]} ${BASH_REMATCH[2]} -o ${BASH_REMATCH[3]}"
	else
		run_example "$@"
	fi
}
fresh() {
	rm -rf "$T/run"
	cp -al "$T/work" "$T/run"
}

fresh
{
	cat "$T/defaults"
	block "[imagenet]" docs/guides/mount.md | here
} >"$PENSTOCK_CONFIG"
cp "$PENSTOCK_CONFIG" "$T/conf"
for page in README.md $(cd "$top_srcdir" && echo docs/guides/*.md); do
	cp "$T/conf" "$PENSTOCK_CONFIG"
	block_commands "$top_srcdir/$page" >"$T/commands"
	[[ $page != README.md ]] || at_least "README has commands" 12 "$(wc -l <"$T/commands")"
	[[ $page != README.md ]] || cp "$T/commands" "$T/readme.commands"
	while IFS= read -r command <&3; do
		case $command in
		*mount* | mkdir*) ;;
		penstock*/tmp/train* | "penstock status"*)
			is_mounted "$T/tmp/train" || {
				mkdir -p "$T/tmp/train"
				penstock mount "$T/www/val/" "$T/tmp/train"
			}
			;;
		esac
		run_shown "$page" "$command"
	done 3<"$T/commands"
	unmount_all
done

page_examples "$top_srcdir/man/penstock.conf.5" >"$T/conf5"
grep -v ' penstock ' "$T/conf5" | here >"$PENSTOCK_CONFIG"
for name in imagenet private; do
	run_example penstock.conf.5 "penstock mount $name"
done
unmount_all

for page in penstock penstock-mount penstock-loader penstock.conf; do
	page=$(echo "$top_srcdir/man/$page".[1-9])
	while IFS= read -r command <&3; do
		[[ $page == *.conf.5 && $command != *" 0 0" ]] || run_shown "${page##*/}" "$command"
	done 3< <(page_examples "$page")
done
unmount_all

for program in penstock penstock-loader; do
	while IFS= read -r command <&3; do
		run_example "$program --help" "$command"
	done 3< <({
		"$program" --help
		for name in $("$program" --help | sed -nE '/^Commands:/,/^$/s/^  ([a-z][a-z-]+) +[a-z].*/\1/p'); do
			echo
			"$program" "$name" --help
		done
	} | sed -n '/^Examples:/,/^$/p' | grep '^  ' | joined)
done
equal "every exception is for a command that is shown" "$(cut -f 1 "$T/exceptions" | sort -u)" \
	"$(sort -u "$T/used")"

# README's loops of Penstock's own loader; WebDataset's is run by programs/webdataset.sh.
module=$top_builddir/loader/python/.libs/_penstock.so
if [[ ! -e $module ]] || ! "$python" -c 'import torch' 2>/dev/null || sanitized "$module"; then
	skip "README.md: the loop in Python runs" "needs the module without sanitizers, and torch"
else
	mkdir -p "$T/python/penstock"
	ln -s "$module" "$top_srcdir"/loader/python/penstock/*.py "$T/python/penstock/"
	penstock mount "$ORIGIN/val/" "$T/tmp/train"
	{
		echo 'import torch; train = lambda image, label, weight: print(tuple(image.shape), label.tolist())'
		echo 'import penstock'
		block 'loader = penstock.Loader("/tmp/train"' README.md | here | sed 's/range(90)/range(2)/'
	} >"$T/readme.py"
	check "README.md: the loop in Python runs" env PYTHONPATH="$T/python" bash \
		-c "cd '$T/run' && '$python' '$T/readme.py' >'$T/readme.out'"
	equal "README.md: the loop has batches of four samples" \
		"(4, 3, 224, 224) [7, 7, 7, 7]" "$(sort -u "$T/readme.out")"
	# The photographs: fewer than a batch has rows, in two folders.
	n=$(find "$T/work/pictures" -name '*.jpg' | wc -l)
	fresh
	grep "pictures/" "$T/readme.commands" >"$T/pack"
	block 'pictures = penstock.Loader' README.md >"$T/photographs.py"
	check "README.md: your own photographs are packed" bash -c "cd '$T/run' && . '$T/pack'"
	check "README.md: their batch can be printed" env PYTHONPATH="$T/python" bash \
		-c "cd '$T/run' && '$python' '$T/photographs.py' >'$T/photographs.out'"
	check "README.md: the batch has each photograph and the number of its folder" "$python" -c "
import re, sys
text = open(sys.argv[1]).read()
labels = [int(x) for x in text.split('[')[1].split(']')[0].split()]
assert text.startswith('($n, 3, 224, 224) '), text
assert sorted(labels) == [0] * ($n // 2) + [1] * ($n // 2), labels" "$T/photographs.out"
fi
