#!/usr/bin/env bash
# Errors give one line on stderr, nothing on stdout, and exit code 2 (the command line is wrong) or another
# one (it is right, but fails). None of these commands needs an origin, and none leaves anything behind.
. "$(dirname "$0")/../../lib.sh"
requires penstock jq

mkdir -p "$T/empty" "$T/full/x" "$T/src" "$T/cache"
echo data >"$T/src/file"
touch "$T/plain"

# bad CODE WORDS ARGUMENT...: penstock fails with CODE and a line that matches WORDS.
bad() {
	local code=$1 words=$2 rc=0
	shift 2
	timeout -k 5 30 penstock "$@" >"$T/out" 2>"$T/err" </dev/null || rc=$?
	if ((rc != code)); then
		fail "penstock $*: exit code $code" "it is $rc: $(cat "$T/err")"
	elif [[ $(wc -l <"$T/err") != 1 || -s $T/out ]]; then
		fail "penstock $*: one line on stderr alone" "$(cat "$T/out" "$T/err")"
	elif ! grep -Eqi -- "$words" "$T/err"; then
		fail "penstock $*: the line has '$words'" "$(cat "$T/err")"
	else
		pass "penstock $*: $(head -c 150 "$T/err" | tr '#' '_')"
	fi
}

bad 2 "unknown command" nosuchcommand
bad 2 "unknown command" ../penstock
bad 2 "unknown option" --nosuchoption
bad 2 "'statsu'; did you mean 'status'\\?$" statsu
bad 2 "'unmount'; did you mean 'umount'\\?$" unmount
bad 2 "'list' \\(penstock --help lists them\\)$" list
bad 2 "'--verison'; did you mean '--version'\\?$" --verison
bad 2 "'--cach-dir'; did you mean '--cache-dir'\\?$" mount "$T/src/" "$T/empty" --cach-dir=secret
bad 2 "'-cache-dir'; did you mean '--cache-dir'\\?$" mount "$T/src/" "$T/empty" -cache-dir "$T/cache"
bad 2 "'allow-othr'; did you mean 'allow_other'\\?$" mount "$T/src/" "$T/empty" -o ro,allow-othr
bad 2 "'--endpoint-url'; did you mean '--endpoint'\\?$" mount s3://b/ "$T/empty" \
	--endpoint-url http://127.0.0.1
bad 2 "'--no-sign'; did you mean '--no-sign-request'\\?$" warm s3://bucket/ --no-sign
bad 2 "'--cache' \\(see penstock mount --help\\)$" mount "$T/src/" "$T/empty" --cache "$T/cache"
bad 2 "'-q' \\(see penstock mount --help\\)$" mount "$T/src/" "$T/empty" -q

bad 2 "too few" mount
bad 2 "too few" mount "$T/src/"
bad 2 "too many" mount "$T/src/" "$T/empty" more
bad 2 "unknown option" mount "$T/src/" "$T/empty" --frobnicate
bad 2 "unknown mount option" mount "$T/src/" "$T/empty" -o frobnicate
bad 2 "unknown mount option" mount "$T/src/" "$T/empty" -o ro,frobnicate=1
bad 2 "read-only" mount "$T/src/" "$T/empty" -o rw
bad 2 "takes no value" mount "$T/src/" "$T/empty" --insecure=yes
bad 2 "'host:80' is neither" mount "$T/src/" "$T/empty" --tier user:secret@host:80
bad 2 "needs" mount "$T/src/" "$T/empty" --cache-dir
bad 2 "needs" mount "$T/src/" "$T/empty" -o
bad 2 "cache-size" mount "$T/src/" "$T/empty" --cache-size 12Q
bad 2 "cache-size.*minimum is 1" mount "$T/src/" "$T/empty" --cache-size 1
bad 2 "memory.*minimum is 1" mount "$T/src/" "$T/empty" --memory 1
bad 2 "max-bandwidth.*minimum is 64" mount "$T/src/" "$T/empty" --max-bandwidth 1
bad 1 "min-free.*in all" mount "$T/src/" "$T/empty" --cache-dir "$T/cache/c" --min-free 1E
echo "X: y" >"$T/headers"
chmod 600 "$T/headers"
for command in mount warm; do
	place=()
	if [[ $command == mount ]]; then place=("$T/empty"); fi
	bad 2 "profile.*s3://.*, which https://127.0.0.1/ is not" $command https://me:pw@127.0.0.1/ \
		"${place[@]}" --profile me
	bad 2 "profile.*s3://" $command HTTPS://127.0.0.1/ "${place[@]}" --profile me
	bad 2 "credentials.*gs://.* s3://bucket/" $command s3://bucket/ "${place[@]}" --credentials "$T/plain"
	for gone in gs-credentials az-sas-file hf-token-file; do
		bad 2 "option $gone no longer exists: write credentials=FILE" $command hf://a/b "${place[@]}" --$gone "$T/plain"
		bad 2 "option $gone no longer exists: write credentials=FILE" $command hf://a/b "${place[@]}" -o $gone="$T/plain"
	done
	bad 2 "option header-file no longer exists: write header=@FILE" $command http://127.0.0.1:1/ "${place[@]}" --header_file "$T/headers"
	bad 2 "client-key-password-file no longer exists: .*openssl pkey" $command http://127.0.0.1:1/ "${place[@]}" \
		--client-key-password-file "$T/plain"
	bad 2 "'scan' no longer exists: plan does the same" $command "$T/src/" "${place[@]}" --policy scan
	bad 2 "proxy.*not local.* file://$T/src/" $command "$T/src/" "${place[@]}" --proxy http://127.0.0.1:1
	bad 2 "option header:.*not local" $command "$T/src/" "${place[@]}" --header "@$T/headers"
done
bad 2 "credentials: the sources are of several kinds" mount a=gs://bucket/ b=hf://a/b "$T/empty" \
	--credentials "$T/plain"
bad 2 "profile.*none of 2 sources is \(https://127.0.0.1/" mount a=https://127.0.0.1/ b="$T/src/" "$T/empty" \
	--profile me
bad 2 "option log: a daemon has no stderr; add -f, or name a file" mount "$T/src/" "$T/empty" --log stderr
bad 2 "scheme|gopher" mount gopher://host/ "$T/empty"
bad 2 "empty source: give a URL, a directory or @list.txt" mount "" "$T/empty"
bad 2 "several sources need names: train=SOURCE val=SOURCE MOUNTPOINT" mount a="$T/src/" "$T/src/" "$T/empty"
bad 2 "hf://.*@a\*b: after @ comes a branch, a tag or a commit" mount 'hf://a/b@a*b' "$T/empty"
bad 2 "hf://.../x/../y: not a path within a repository" mount 'hf://a/b/x/../y' "$T/empty"
bad 2 "hf://...: too long" mount "hf://a/b/$(printf '%70000s' '' | tr ' ' x)" "$T/empty"
bad 1 "gs://: versions cannot be pinned there; leave --pin-versions out" mount gs://b/ "$T/empty" \
	--cache-dir "$T/cache/d" --pin-versions
bad 1 "gs://: the payer is a project; give --header 'x-goog-user-project: PROJECT'" mount gs://b/ "$T/empty" \
	--cache-dir "$T/cache/d" --request-payer
bad 1 "header option: \"a\(b\" is not a header name" mount http://127.0.0.1:1/ "$T/empty" \
	--cache-dir "$T/cache/d" --header 'a(b: x'
bad 2 "NAME:PASSWORD" mount "$T/src/" "$T/empty" --user me
bad 2 "MOUNTPOINT comes last" mount "$T/empty" https://127.0.0.1/train/
bad 2 "unknown command 'nix'" help nix
bad 1 "no such folder" mount "$T/src/" "$T/nothing" --cache-dir "$T/cache/c"
bad 1 "not a folder" mount "$T/src/" "$T/plain" --cache-dir "$T/cache/c"
bad 1 "not empty" mount "$T/src/" "$T/full" --cache-dir "$T/cache/c"
bad 1 "within its own source" mount "$T/" "$T/empty" --cache-dir "$T/cache/c"
bad 1 "hidden" mount "$T/src/" "$T/empty" --cache-dir "$T/empty/c"
bad 1 "does not exist" mount "$T/src/" "$T/empty" --cache-dir "$T/nothing/c"
bad 1 "no such|permission|log file" mount "$T/src/" "$T/empty" --cache-dir "$T/cache/c" --log "$T/nothing/log"

bad 2 "too few" umount
bad 2 "unknown option" umount --gently "$T/empty"
bad 1 "not a penstock mount" umount "$T/empty"
bad 1 "not a penstock mount|type" umount /proc
bad 1 "there is no such folder" umount "$T/nothing"
bad 1 "there is no such folder" umount "$T/nothing/below"
bad 1 "not a penstock mount" umount --lazy "$T/empty"
bad 1 "not a penstock mount" umount --force "$T/empty"

bad 1 "not a penstock mount" status "$T/empty"
bad 2 "watch" status --watch=never
bad 2 "option watch: '0.01' is not a time" status --watch 0.01
bad 2 "too many" status "$T/empty" "$T/full"
bad 2 "unknown option" status --xml

bad 2 "too few" warm
bad 1 "not a penstock mount" warm "$T/empty"
bad 2 "jobs" warm "$T/empty" --jobs 0
bad 2 "jobs" warm "$T/empty" --jobs many
bad 2 "scheme|gopher" warm gopher://host/
bad 3 "matches '\*.tar'" warm "file://$T/src/" '*.tar' --cache-dir "$T/cache/w"

bad 1 "no such|not a" verify --cache-dir "$T/nothing"
bad 1 "cache" verify --cache-dir "$T/full"
bad 2 "too many" verify "$T/cache/w"
bad 2 "too few" evict
bad 2 "too few" pin
bad 2 "too few" unpin
bad 1 "not a penstock mount" pin "$T/empty"
bad 1 "not a penstock mount" unpin "$T/empty"
bad 1 "not a penstock mount" evict "$T/empty"
bad 1 "no such|not a" evict --cache-dir "$T/nothing"
bad 1 "matches" evict --cache-dir "$T/cache/w" '*.tar'

check "warm of a folder" penstock warm "file://$T/src/" --cache-dir "$T/cache/w" --quiet
counts() { jq -c '[.objects, .blocks, .bytes, .bad_blocks, .missing_files, .bad_objects]'; }
equal "verify counts the warmed file" \
	"[1,1,5,0,0,0]" "$(penstock verify --cache-dir "$T/cache/w" --json | counts)"
check "evict drops the file" penstock evict --cache-dir "$T/cache/w" file
equal "verify finds nothing after evict" \
	"[0,0,0,0,0,0]" "$(penstock verify --cache-dir "$T/cache/w" --json | counts)"
equal "no mount is left" "" "$(ps_mounts_below "$T")"
check "no process is left" wait_until 10 no_daemon
check_not "the failed mounts made no cache" test -e "$T/cache/c"
