#!/usr/bin/env bash
# The command lines of scripts/tier/: what is refused, what is allowed to connect, what --print, --unit and
# certificates make. No server is started.
. "$(dirname "$0")/../lib.sh"
requires getent hostname

tier=$top_srcdir/scripts/tier
origin=(--origin https://host.example)
print() { "$tier/nginx" --print --cacert /dev/null "$@"; }

# refuses WHAT WORDS ARGUMENT...: exit status 2, and the words in its text.
refuses() {
	local what=$1 words=$2 rc=0 text
	shift 2
	text=$(print "$@" 2>&1 >/dev/null) || rc=$?
	equal "$what: refused" 2 "$rc"
	check "$what: it says why" grep -qF -- "$words" <<<"$text"
}
for everywhere in 0.0.0.0 :: '[::]:3180' 0 0.0 '*' '' ::0 0.0.0.0:80 ::ffff:0.0.0.0; do
	refuses "--listen '$everywhere' alone" "a tier gives what it keeps to all that reach its port" \
		"${origin[@]}" --listen "$everywhere"
done
refuses "everybody allowed" "lets everybody connect" "${origin[@]}" --listen 0.0.0.0 --allow 0.0.0.0/0
refuses "everybody allowed, by IPv6" "lets everybody connect" "${origin[@]}" --listen 0.0.0.0 --allow ::/0
refuses "a name to allow" "is no address or network" "${origin[@]}" --allow node1
refuses "0.0.0.0 as a node" "is no address of a node" "${origin[@]}" --nodes 0.0.0.0
refuses "no origin" "which origin" --nodes 127.0.0.1
refuses "an origin with a path" "no path" --origin https://host.example/train
refuses "an origin with a user" "no user" --origin https://me:secret@host.example
refuses "an origin of another scheme" "is not https://HOST" --origin s3://bucket
refuses "an origin that would end the directive" "has characters" --origin 'https://host;}'
refuses "a folder that would end the directive" "has characters" "${origin[@]}" --dir '/tmp/a;b'
refuses "one name with two ports" "twice" --origin https://host.example --origin https://host.example:8443
refuses "no size" "is not a size" "${origin[@]}" --size lots
refuses "a size too small" "less than 64M" "${origin[@]}" --size 1M
refuses "no size of the dataset" "is not a size" "${origin[@]}" --dataset lots
refuses "a dataset that the tiers cannot hold" "takes 161281M of each" "${origin[@]}" --dataset 300G \
	--size 160G --nodes 192.0.2.1,192.0.2.2 --this 192.0.2.1
refuses "nodes of which none is here" "none of --nodes is this machine" "${origin[@]}" --nodes \
	203.0.113.1,203.0.113.2
refuses "a node without an address" "has no address here" "${origin[@]}" --nodes no-such-host.invalid
refuses "a node that is loopback here, among several" "where no other node can connect" "${origin[@]}" --nodes \
	localhost,192.0.2.2
check "a single node may be loopback" print "${origin[@]}" --nodes localhost
refuses "a port that is none" "is not a port" "${origin[@]}" --nodes 127.0.0.1:70000
refuses "a query of an unknown host" "is the host of no --origin" "${origin[@]}" --strip-query other.example
refuses "certificates that are missing" "there is no" "${origin[@]}" --tls "$T"
refuses "an unknown option" "unknown option --fast" "${origin[@]}" --fast
refuses "an option without its value" "needs a value" --origin
check "0.0.0.0 with those who may connect" print "${origin[@]}" --listen 0.0.0.0 --allow 10.1.0.0/16

# One list on all nodes: who listens where, and who may connect.
print "${origin[@]}" --nodes 192.0.2.1,192.0.2.2:99,192.0.2.3 --this 192.0.2.2 --origin \
	http://second.example:8080 >"$T/conf"
equal "a node listens at its own address and for itself" "127.0.0.1:99 192.0.2.2:99" \
	"$(grep -o 'listen [0-9.:]*' "$T/conf" | cut -c 8- | sort -u | xargs)"
equal "its peers may connect, no one else" "127.0.0.0/8 192.0.2.1 192.0.2.2 192.0.2.3 ::1" \
	"$(sed -n 's/^ *allow \(.*\);/\1/p' "$T/conf" | sort -u | xargs)"
equal "each server denies all others" "$(grep -c '^ *server {$' "$T/conf")" "$(grep -c 'deny all;' "$T/conf")"
equal "requests go to the origins' upstreams" "http://tier_1 https://tier_0" \
	"$(sed -n 's/^ *proxy_pass \(.*\);/\1/p' "$T/conf" | sort -u | xargs)"
check "certificates of origins are verified" grep -q 'proxy_ssl_verify on;' "$T/conf"
check "certificates are verified for the origins' names" grep -q 'proxy_ssl_name host.example;' "$T/conf"
print "${origin[@]}" --nodes 192.0.2.1,192.0.2.2,192.0.2.3,192.0.2.4 --this 192.0.2.1 --size 200G \
	--dataset 600G >"$T/conf"
equal "a tier's part of a disk holds its part of the dataset" $((600 * 1024 ** 3 * 105 / 400)) \
	"$(sed -n 's/.* max_size=\([0-9]*\) .*/\1/p' "$T/conf")"
check_not "nothing is written" [ -e /var/cache/penstock-tier/nginx.conf ]
for engine in trafficserver varnish squid; do
	for everywhere in 0.0.0.0 '[::]'; do
		check_not "$engine refuses $everywhere" "$tier/$engine" --print --origin \
			http://host.example --listen "$everywhere" --cacert /dev/null
	done
	check_not "$engine refuses --check-each, which it cannot do" \
		"$tier/$engine" --print --origin http://host.example --check-each --cacert /dev/null
done

"$tier/nginx" "${origin[@]}" --size 1.5T --unit --dir '/srv/tier' >"$T/unit"
check "a unit runs the same command" grep -qF \
	"tier/nginx --origin https://host.example --size 1.5T --dir /srv/tier --foreground" "$T/unit"
if command -v systemd-analyze >/dev/null; then
	cp "$T/unit" "$T/penstock-tier.service"
	equal "systemd accepts the unit" "" \
		"$(systemd-analyze verify "$T/penstock-tier.service" 2>&1 | grep penstock-tier || true)"
else
	skip "systemd accepts the unit" "systemd-analyze is not installed"
fi
equal "--stop of what does not run" "nginx: nothing runs with $T/none" \
	"$("$tier/nginx" --dir "$T/none" --stop)"

mkdir -m 777 "$T/loose"
check_not "a folder that others may write is refused" "$tier/nginx" "${origin[@]}" --dir "$T/loose"
equal "and nothing is written there" "" "$(ls "$T/loose")"
if ((EUID == 0)); then
	mkdir -m 755 "$T/theirs"
	chown nobody "$T/theirs"
	check "another user's folder is refused" grep -q "another user's" \
		<("$tier/nginx" "${origin[@]}" --dir "$T/theirs" 2>&1)
fi

if command -v openssl >/dev/null; then
	check "certificates are made" "$tier/certificates" --nodes \
		"node1,192.0.2.7:99,[2001:db8::1]:3180" "$T/pki"
	for file in node1 192.0.2.7 2001:db8::1 client; do
		check "$file.crt is of the authority" openssl verify -CAfile "$T/pki/ca.crt" \
			"$T/pki/$file.crt"
	done
	check "the certificate for an address has it as an IP address" bash -c \
		"openssl x509 -in '$T/pki/192.0.2.7.crt' -noout -text | grep -q 'IP Address:192.0.2.7'"
	equal "a client's certificate is not valid for a server" "TLS Web Client Authentication" \
		"$(openssl x509 -in "$T/pki/client.crt" -noout -ext extendedKeyUsage | tail -n 1 | xargs)"
	equal "keys are their owner's" "600" "$(stat -c %a "$T"/pki/*.key | sort -u)"
	before=$(sha256sum <"$T/pki/node1.crt")
	check "another node is added" "$tier/certificates" --nodes node1,node2 "$T/pki"
	equal "the other certificates stay" "$before" "$(sha256sum <"$T/pki/node1.crt")"
	check "with certificates everybody may reach the port" print "${origin[@]}" --this node1 \
		--listen 0.0.0.0 --tls "$T/pki" --allow 0.0.0.0/0
	check "a client without a certificate is refused" grep -q 'ssl_verify_client on;' \
		<(print "${origin[@]}" --this node1 --listen 0.0.0.0 --tls "$T/pki")
else
	skip "certificates are made" "openssl is not installed"
fi
