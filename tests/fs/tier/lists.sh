#!/usr/bin/env bash
# Lists of tiers that change while something is mounted: a file, and the addresses of a name. Certificates
# that a mount shows to tiers, and what happens without the right one.
PS_TEST_TIMEOUT=${PS_TEST_TIMEOUT:-300}
. "$(dirname "$0")/../../lib.sh"
requires mount nginx openssl root mount-namespace slow
# What follows has an /etc/hosts of its own.
if [[ ! ${PS_TEST_HOSTS-} ]]; then
	export PS_TEST_HOSTS=$T/hosts
	printf '127.0.0.1 localhost tiers.test\n' >"$PS_TEST_HOSTS"
	# shellcheck disable=SC2016 # for the inner shell
	exec unshare -m --propagation private \
		bash -c 'mount --bind "$PS_TEST_HOSTS" /etc/hosts && exec bash "$0"' "$0"
fi
forget_others_mounts
. "$top_srcdir/tests/fs/tier/tier_lib.sh"

make_shards "$T/www" 6 17000000
start_nginx
good=$(sha_manifest "$T/www")
tier() { stats ".mounts[0].tier.$1"; }
# How many requests tier I got.
asked() { wc -l <"$T/tier$1/access.log"; }
read_all() { # WHAT
	penstock evict "$MNT" >/dev/null
	drop_page_cache
	equal "$1: right bytes" "$good" "$(sha_manifest "$MNT" | grep -v penstock)"
}
listed() { [[ $(tier known) == "$1" ]]; } # NUMBER

# A file.
start_tiers 3
printf '# tiers of the rack\n%s\n' "${TIER[1]}" >"$T/list"
mount_penstock "$ORIGIN/" --tier "@$T/list"
read_all "a list of one tier"
at_least "a list of one tier: it was asked" 20 "$(asked 1)"
printf '%s\n%s\n' "${TIER[2]}" "${TIER[3]}" >"$T/list.new" && mv "$T/list.new" "$T/list"
check "the file names two others: the mount has them" wait_until 30 listed 2
tiers_forget 1 2 3
read_all "two others"
equal "two others: the first one is not asked any more" 0 "$(asked 1)"
at_least "two others: they share the work" 1 "$(($(asked 2) < $(asked 3) ? $(asked 2) : $(asked 3)))"
equal "two others: the figures of the first one stay" left \
	"$(stats ".mounts[0].tier.tiers[] | select(.url == \"${TIER[1]}\") | .state")"
rm "$T/list"
tiers_forget 1 2 3
sleep 6
read_all "the file is gone"
at_least "the file is gone: the list stays as it was" 20 $(($(asked 2) + $(asked 3)))
check "the file is gone: the log says so" \
	grep -q "list of tiers $T/list: No such file.*list stays" "$T/penstock.log"
echo "${TIER[1]}" >"$T/list"
check "the file is there again: its list counts" wait_until 30 listed 1
umount_penstock
for i in 1 2 3; do kill_tier "$i"; done

# A name: each address of it is a tier.
port=$(free_port)
for i in 1 2 3; do
	rm -rf "$T/tier$i" && mkdir -p "$T/tier$i"/{tmp,cache}
	tier_conf "$i" "127.0.0.$i:$port" "$ORIGIN" >"$T/tier$i/nginx.conf"
	nginx -p "$T/tier$i/" -c "$T/tier$i/nginx.conf" >"$T/tier$i/start.log" 2>&1 || die "tier $i starts"
done
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --tier "dns+http://tiers.test:$port"
equal "a name with one address is one tier" 1 "$(tier known)"
read_all "a name with one address"
at_least "a name with one address: it was asked" 20 "$(asked 1)"
# (In place: the file is mounted.)
printf '127.0.0.1 localhost\n127.0.0.2 tiers.test\n127.0.0.3 tiers.test\n' >"$PS_TEST_HOSTS"
check "the name gets two others: the mount has them" wait_until 60 listed 2
tiers_forget 1 2 3
read_all "two other addresses"
equal "two other addresses: the first one is not asked any more" 0 "$(asked 1)"
at_least "two other addresses: they share the work" 1 "$(($(asked 2) < $(asked 3) ? $(asked 2) : $(asked 3)))"
umount_penstock

# A name that is not known yet: the origin is asked until it is.
printf '127.0.0.1 localhost\n' >"$PS_TEST_HOSTS"
rm -rf "$CACHE"
mount_penstock "$ORIGIN/" --tier "dns+http://tiers.test:$port"
read_all "a name without an address"
equal "a name without an address: there is no tier" 0 "$(tier known)"
printf '127.0.0.1 localhost\n127.0.0.3 tiers.test\n' >"$PS_TEST_HOSTS"
check "it is known later: the mount has it" wait_until 60 listed 1
tiers_forget 3
read_all "it is known later"
at_least "it is known later: it is asked" 20 "$(asked 3)"
umount_penstock
for i in 1 2 3; do kill_tier "$i"; done

# A tier that wants a client's certificate.
"$top_srcdir/scripts/tier/certificates" --nodes localhost "$T/pki" >"$T/certificates.log" 2>&1
"$top_srcdir/scripts/tier/certificates" --nodes localhost "$T/others" >>"$T/certificates.log" 2>&1
openssl pkcs12 -export -in "$T/pki/client.crt" -inkey "$T/pki/client.key" -passout pass: -out "$T/client.p12"
cat "$T/pki/client.crt" "$T/pki/client.key" >"$T/both.pem"
port=$(free_port)
mkdir -p "$T/tier4"/{tmp,cache}
TIER_CONF="" tier_conf 4 "127.0.0.1:$port ssl; ssl_certificate $T/pki/localhost.crt;
	ssl_certificate_key $T/pki/localhost.key; ssl_client_certificate $T/pki/ca.crt; ssl_verify_client on" "$ORIGIN" >"$T/tier4/nginx.conf"
nginx -p "$T/tier4/" -c "$T/tier4/nginx.conf" >"$T/tier4/start.log" 2>&1 ||
	die "tier 4 starts" "$(cat "$T/tier4/start.log")"
mtls() { # WHAT OPTION...
	rm -rf "$CACHE"
	: >"$T/tier4/access.log"
	check "$1: mounts" mount_penstock "$ORIGIN/" --tier "https://localhost:$port" "${@:2}"
	read_all "$1"
}
passed() {
	mtls "$@"
	at_least "$1: the tier answers" 90000000 "$(tier bytes)"
	equal "$1: each time" 0 "$(tier fallbacks)"
	umount_penstock
}
stopped() {
	mtls "$@"
	equal "$1: nothing comes from the tier" 0 "$(tier bytes)"
	equal "$1: it is set aside" aside "$(tier 'tiers[0].state')"
	umount_penstock
}
ca=(--tier-cacert "$T/pki/ca.crt")
passed "certificate and key" "${ca[@]}" --tier-cert "$T/pki/client.crt" --tier-key "$T/pki/client.key"
passed "both in one file" "${ca[@]}" --tier-cert "$T/both.pem"
passed "a .p12" "${ca[@]}" --tier-cert "$T/client.p12"
stopped "no certificate" "${ca[@]}"
stopped "another authority's certificate" "${ca[@]}" \
	--tier-cert "$T/others/client.crt" --tier-key "$T/others/client.key"
stopped "a tier of another authority" --tier-cacert "$T/others/ca.crt" --tier-cert "$T/pki/client.crt" \
	--tier-key "$T/pki/client.key"
check "a tier of another authority: the log names the option" \
	grep -q 'tier: .*--tier-cacert.*set aside' "$T/penstock.log"
stopped "a key that is not the certificate's" "${ca[@]}" \
	--tier-cert "$T/pki/client.crt" --tier-key "$T/others/client.key"
check "a key that is not the certificate's: the log names it" \
	grep -q "tier: .*private key.*$T/others/client.key.*set aside" "$T/penstock.log"
