#!/usr/bin/env bash
# az:// against a stand-in that verifies SharedKey and SAS (Microsoft's own client agrees with it): names over
# several pages, bytes, versions, credentials of every form, refusals in clear words, and no secret anywhere.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount jq python:http.server

for name in "${!AZURE_STORAGE_@}"; do unset "$name"; done
KEY=$(printf 'never-to-be-seen-%.0s' 1 2 3 | base64 -w 0)
mkdir -p "$T/az/blobs/data/train/deep er" "$T/az/blobs/data/lists"
echo "$KEY" >"$T/az/key"
echo 3 >"$T/az/page"
blobs=$T/az/blobs/data
for i in 0 1 2 3 4 5 6; do random_file "$blobs/train/shard-00000$i.bin" $((i * 700000 + 5000)) "az$i"; done
random_file "$blobs/train/deep er/a+b %20&#?ü=.bin" 1500001
cp -r "$blobs/train" "$T/truth"
"$python" -B "$top_srcdir/tests/fs/origins/az_server.py" "$T/az" >"$T/az_server.log" 2>&1 &
wait_until 30 test -s "$T/az/port" || die "the stand-in starts" "$(cat "$T/az_server.log")"
AZ=http://127.0.0.1:$(cat "$T/az/port")
SRC=az://acct/data/train/
sas() { "$python" "$top_srcdir/tests/fs/origins/az_check.py" sas "$KEY" "$@"; }
names() { (cd "$MNT" && find . -type f | sed 's,^\./,,' | sort); }
mount_az() {
	CACHE=$T/cache-$((++mounted))
	mount_penstock "$@" --timeout 10s
}
mounted=0
no_secrets() {
	check_not "$1: no secret is in the log or the cache" grep \
		-rqaE "never-to-be-seen|$KEY|sig=[A-Za-z0-9%]" "$T/penstock.log" "$CACHE"
	check_not "$1: no secret is in the daemon's command line or environment" \
		grep -qaE "$KEY|sig=[A-Za-z0-9%]" "/proc/$(daemon_pid)/cmdline" "/proc/$(daemon_pid)/environ"
	check_not "$1: no secret is in the statistics" \
		grep -qaE "$KEY|sig=[A-Za-z0-9%]" "$MNT/.penstock/stats" \
		"$MNT/.penstock/metrics"
}
works() { # WHAT HOW OPTION...
	local what=$1 how=$2
	shift 2
	: >"$T/az/log"
	: >"$T/az/refused"
	check "$what: mounts" mount_az "$@"
	check "$what: names and bytes are right" diff -r "$T/truth" "$MNT"
	equal "$what: nothing was refused" "" "$(cat "$T/az/refused")"
	equal "$what: all requests were authorized by $how" 0 "$(grep -vc " $how " "$T/az/log")"
	no_secrets "$what"
	umount_penstock
}
refused() { # WHAT WORDS OPTION...
	local what=$1 words=$2
	shift 2
	ps_run mount_az "$@"
	equal "$what: fails, in one line" "yes 1" "$( ((rc == 1 || rc == 2)) && echo yes) $(wc -l <<<"$out")"
	check "$what: the line says why" grep -Eq "$words" <<<"$out"
	check_not "$what: neither the line nor the log has a secret" \
		grep -qE "never-to-be-seen|$KEY|sig=[A-Za-z0-9]" <<<"$out" \
		"$T/penstock.log"
}

export AZURE_STORAGE_ACCOUNT=acct AZURE_STORAGE_KEY=$KEY
works "a key" SharedKey $SRC --endpoint "$AZ"
works "an endpoint with the account" SharedKey $SRC --endpoint "$AZ/acct"
refused "another account than the key's" 'for the account acct' az://other/data/ --endpoint "$AZ"
AZURE_STORAGE_KEY=d3Jvbmc= refused "a wrong key" 'AuthenticationFailed: permission denied' $SRC \
	--endpoint "$AZ"
AZURE_STORAGE_KEY=x refused "an invalid key" 'is not valid: it must be base64' $SRC --endpoint "$AZ"
refused "no such container" 'there is no container of that name' az://acct/none/ --endpoint "$AZ"
refused "no such container, for names in braces" 'no such blob, or no container' \
	'az://acct/none/x-{0..1}.tar' --endpoint "$AZ"
refused "no such prefix" 'no key with this prefix' az://acct/data/none/ --endpoint "$AZ"
refused "no container in the source" 'az://ACCOUNT/CONTAINER/PREFIX/' az://acct --endpoint "$AZ"
refused "an option of other stores" 'it is for buckets' $SRC --endpoint "$AZ" --request-payer
refused "a header that is signed" 'set by the mount itself' $SRC --endpoint "$AZ" --header 'x-ms-version: 1'
echo 4000 >"$T/az/skew"
check "with the store's clock ahead the mount succeeds" mount_az $SRC --endpoint "$AZ"
check "with the store's clock ahead a blob is read" cmp "$MNT/shard-000001.bin" "$T/truth/shard-000001.bin"
umount_penstock
rm "$T/az/skew"
# While the source is mounted, the daemon's clock is set to another time, and back.
if [[ -x $top_builddir/tests/fs/daemon/penstock_faults ]]; then
	mkdir "$T/bin"
	ln -s "$top_builddir/tests/fs/daemon/penstock_faults" "$T/bin/penstock"
	head -c 4096 /dev/zero >"$T/faults"
	PATH=$T/bin:$PATH PENSTOCK_FAULTS=$T/faults mount_az $SRC --endpoint "$AZ"
	n=0
	for s in 40000 -40000 0; do
		"$python" "$top_srcdir/tests/fs/daemon/torturer.py" --clock "$T/faults" "$s"
		check "a blob is read after the clock is set by $s s" cmp "$MNT/shard-00000$n.bin" \
			"$T/truth/shard-00000$n.bin"
		n=$((n + 2))
	done
	at_least "the log says that the clock is off the store's" \
		2 "$(grep -c 's off the store' "$T/penstock.log")"
	umount_penstock
fi
unset AZURE_STORAGE_ACCOUNT AZURE_STORAGE_KEY

export AZURE_STORAGE_CONNECTION_STRING="DefaultEndpointsProtocol=http;AccountName=acct;AccountKey=$KEY;BlobEndpoint=$AZ/acct"
works "a connection string" SharedKey $SRC
AZURE_STORAGE_CONNECTION_STRING="AccountName=acct;SharedAccessSignature=$(sas rl 600);BlobEndpoint=$AZ/acct" \
	works "a connection string with a SAS" SAS $SRC
unset AZURE_STORAGE_CONNECTION_STRING
AZURE_STORAGE_SAS_TOKEN="?$(sas rl 600)" works "a SAS of the environment" SAS $SRC --endpoint "$AZ"
works "a SAS in the source" SAS "$SRC?$(sas rl 600)" --endpoint "$AZ"
AZURE_STORAGE_SAS_TOKEN=$(sas r 600) refused "a SAS without l" 'AuthorizationPermissionMismatch.*listing l' \
	$SRC --endpoint "$AZ"
AZURE_STORAGE_SAS_TOKEN=$(sas rl -5) refused "a SAS that has expired" 'has expired' $SRC --endpoint "$AZ"
(umask 077 && echo nonsense >"$T/no_sas")
refused "a SAS file without a SAS" "SAS file $T/no_sas: " $SRC --endpoint "$AZ" --credentials "$T/no_sas"
AZURE_STORAGE_SAS_TOKEN=nonsense refused "an invalid SAS" 'not a shared access signature' $SRC --endpoint "$AZ"
refused "no credentials" 'AZURE_STORAGE_KEY.*--no-sign-request' $SRC --endpoint "$AZ"
refused "a container that is not public" 'permission denied' $SRC --endpoint "$AZ" --no-sign-request
touch "$T/az/public"
works "a public container" none $SRC --endpoint "$AZ" --no-sign-request
rm "$T/az/public"

# The SAS file is read again when its SAS is refused.
(umask 077 && sas rl 8 >"$T/sas")
check "a SAS in a file" mount_az $SRC --endpoint "$AZ" --credentials "$T/sas"
check "a blob is read with the SAS in the file" cmp "$MNT/shard-000000.bin" "$T/truth/shard-000000.bin"
sas rl 600 >"$T/sas"
sleep 9
check "a new SAS in the file is used" cmp "$MNT/shard-000002.bin" "$T/truth/shard-000002.bin"
no_secrets "a file"
umount_penstock

# Sources of other forms; versions; refresh; choices.
export AZURE_STORAGE_KEY=$KEY
form() { # WHAT NAMES SOURCE OPTION...
	check "$1: mounts" mount_az "${@:3}" --endpoint "$AZ"
	equal "$1: shows" "$2" "$(names | xargs)"
	[[ ${4-} == stay ]] || umount_penstock
}
form "one blob" shard-000003.bin az://acct/data/train/shard-000003.bin
form "a prefix without its slash" "a+b %20&#?ü=.bin" "az://acct/data/train/deep er"
form "braces" "shard-000001.bin shard-000002.bin" 'az://acct/data/train/shard-{000001..000002}.bin'
printf '/train/shard-000004.bin\naz://acct/data/train/shard-000005.bin\n' >"$blobs/lists/list.txt"
form "a list in the container" "shard-000004.bin shard-000005.bin" az://acct/data/lists/list.txt
printf 'az://acct/data/train/shard-000001.bin\naz://other/data/train/x.bin\n' >"$T/list.txt"
check "a list with blobs of another account" mount_az "@$T/list.txt" --endpoint "$AZ"
check_not "the blob of the other account cannot be read" cat "$MNT/other/data/train/x.bin"
equal "no request is sent for the other account" 0 "$(grep -c other "$T/az/log")"
umount_penstock

check "a mount with patterns succeeds" \
	mount_az $SRC --endpoint "$AZ" --include 'shard-*' --exclude '*-000006.bin' \
	--revalidate open --no-passthrough
equal "the patterns choose names" "$(printf 'shard-00000%d.bin ' {0..5})" "$(names | tr '\n' ' ')"
check "a blob is read" cmp "$MNT/shard-000001.bin" "$T/truth/shard-000001.bin"
random_file "$blobs/train/shard-000001.bin" 800000 other
check "a blob that is overwritten is read again" cmp "$MNT/shard-000001.bin" "$blobs/train/shard-000001.bin"
exec 5<"$MNT/shard-000005.bin"
head -c 1000 <&5 >/dev/null
random_file "$blobs/train/shard-000005.bin" 3505000 other
check "a blob that changes while it is open gives no mixed bytes" \
	"$python" - "$T/truth/shard-000005.bin" <<'PY'
import os, sys
try: got = os.pread(5, 4000000, 0)
except OSError: sys.exit(0)
whole = open(sys.argv[1], "rb").read()
sys.exit(got != whole[:len(got)])
PY
exec 5<&-
random_file "$blobs/train/shard-000007.bin" 100
rm "$blobs/train/shard-000000.bin"
equal "refresh reports new and deleted blobs" "6 files listed, 1 new, 1 gone" "$(penstock refresh "$MNT")"
touch "$T/az/busy"
(sleep 2 && rm "$T/az/busy") &
check "a read waits for a busy store" cmp "$MNT/shard-000003.bin" "$T/truth/shard-000003.bin"
umount_penstock

# The stand-in accepts what Microsoft's own client signs, so it may judge our signatures.
if [[ ${PENSTOCK_TEST_QUICK-} == 1 ]]; then
	skip "azure-storage-blob agrees with the stand-in" "it is fetched; left out by --quick"
elif pip_venv azure azure-storage-blob; then
	check "azure-storage-blob agrees with the stand-in" "$top_builddir/tests-cache/azure/bin/python" \
		"$top_srcdir/tests/fs/origins/az_check.py" check "$AZ/acct" "$KEY"
	at_least "the stand-in has accepted its SharedKey" 3 "$(grep -c ' SharedKey azsdk' "$T/az/log")"
	at_least "the stand-in has accepted its SAS" 3 "$(grep -c ' SAS azsdk' "$T/az/log")"
else
	skip "azure-storage-blob agrees with the stand-in" "it cannot be installed: $(tail -n 1 "$T/pip.log")"
fi
