#!/usr/bin/env bash
# Credentials for an origin: .netrc from its places, for the origin's own host and only if nothing else is
# given; a client certificate with its key; CAs from the environment.
. "$(dirname "$0")/../../lib.sh"
requires mount nginx

make_tree "$T/www"
start_nginx
export HOME=$T/home
mkdir -p "$HOME"

refused() { # WHAT WORDS SOURCE OPTION...
	local what=$1 words=$2 rc=0
	shift 2
	CACHE=$T/cache-refused mount_penstock "$@" >"$T/out" 2>&1 || rc=$?
	equal "$what: fails" 1 "$((rc != 0))"
	equal "$what: in one line" 1 "$(wc -l <"$T/out")"
	check "$what: the line says why" grep -Eqi "$words" "$T/out"
	check_not "$what: nothing is mounted" is_mounted
}

works() {
	local what=$1
	shift
	CACHE=$T/cache-$((++works))
	check "$what: mounts" mount_penstock "$@"
	check "$what: right bytes" read_tree 1m
	umount_penstock
}
works=0

refused "no .netrc" 401 "$ORIGIN/basic/"
cat >"$HOME/.netrc" <<-'NETRC'
	# a comment
	machine other.example login user password wrong
	macdef init
	machine 127.0.0.1 login user password wrong

	machine 127.0.0.1
	login user password "pass:word"
	default login nobody password none
NETRC
works ".netrc" "$ORIGIN/basic/"
refused ".netrc yields to --user" 401 "$ORIGIN/basic/" --user user:wrong
refused ".netrc yields to the URL" 401 "http://user:wrong@${ORIGIN#http://}/basic/"
refused ".netrc yields to a header" 401 "$ORIGIN/basic/" --header "Authorization: Basic eDp5"
mv "$HOME/.netrc" "$T/netrc"
NETRC=$T/netrc works "NETRC" "$ORIGIN/basic/"
works "--netrc-file" "$ORIGIN/basic/" --netrc-file "$T/netrc"
refused "a missing --netrc-file" 'netrc file.*no such file' "$ORIGIN/basic/" --netrc-file "$T/none"
NETRC=$T/none works "a missing NETRC file for a source that needs no login" "$ORIGIN/"
echo 'machine 127.0.0.1 login user password "pass:word"' >"$T/netrc"
refused "a .netrc with another host's entry" 401 "${ORIGIN/127.0.0.1/localhost}/basic/" --netrc-file "$T/netrc"

cd "$T/nginx"
refused "no client certificate" '400|certificate' "$ORIGIN_MUTUAL/" --cacert ca.pem
works "a client certificate" "$ORIGIN_MUTUAL/" --cacert ca.pem --client-cert c.crt --client-key c.key
cat c.crt c.key >both.pem
works "certificate and key in one file" "$ORIGIN_MUTUAL/" --cacert ca.pem --client-cert both.pem
openssl pkey -in p.key -passin pass:opensesame -out plain.key 2>"$T/openssl.log"
works "a key whose password was removed" "$ORIGIN_MUTUAL/" --cacert ca.pem --client-cert c.crt --client-key plain.key
openssl pkcs12 -export -in c.crt -inkey c.key -passout pass: -out c.p12 2>"$T/openssl.log"
works "PKCS#12" "$ORIGIN_MUTUAL/" --cacert ca.pem --client-cert c.p12
refused "a key with a password" "must not have a password" "$ORIGIN_MUTUAL/" --cacert ca.pem --client-cert c.crt --client-key p.key
refused "a certificate that is not there" 'client certificate.*no such file' "$ORIGIN_MUTUAL/" \
	--client-cert none.crt
refused "a key alone" 'needs its certificate' "$ORIGIN_MUTUAL/" --client-key c.key

CURL_CA_BUNDLE=$PWD/ca.pem works "CURL_CA_BUNDLE" "$ORIGIN_TLS/"
SSL_CERT_FILE=$PWD/ca.pem works "SSL_CERT_FILE" "$ORIGIN_TLS/"
CURL_CA_BUNDLE=$PWD/none refused "a missing CURL_CA_BUNDLE" 'certificate' "$ORIGIN_TLS/"
check "the log reports the missing CURL_CA_BUNDLE" grep -q 'CURL_CA_BUNDLE:.*No such file' "$T/penstock.log"
CURL_CA_BUNDLE=$PWD/none works "CURL_CA_BUNDLE yields to --cacert" "$ORIGIN_TLS/" --cacert ca.pem

# The same source is the same dataset: a second mount fetches nothing, whatever the order of its environment.
# fetched [VARIABLE=VALUE...] SOURCE OPTION...: mounts with these variables, in this order, reads the tree, and
# prints the requests for file bytes at the origin.
fetched() {
	local vars=()
	while [[ $1 == *=/* ]]; do
		vars+=("$1")
		shift
	done
	: >"$T/nginx/access.log"
	mkdir -p "$MNT"
	env -i PATH="$PATH" HOME="$HOME" LD_LIBRARY_PATH="${LD_LIBRARY_PATH-}" "${vars[@]}" timeout 60 penstock mount "$1" \
		"$MNT" --cache-dir "$T/cache-shared" --log "$T/penstock.log" "${@:2}" &&
		read_tree 1m >/dev/null && umount_penstock
	grep -c '^GET [^ ]*\.bin ' "$T/nginx/access.log" || true
}
ca=$PWD/ca.pem
system=/etc/ssl/certs/ca-certificates.crt
cp ca.pem other.pem
check "the first mount fetches" test "$(fetched "SSL_CERT_FILE=$ca" "CURL_CA_BUNDLE=$ca" "$ORIGIN_TLS/")" -gt 0
equal "the same variables in another order: nothing is fetched again" 0 \
	"$(fetched "CURL_CA_BUNDLE=$ca" "SSL_CERT_FILE=$ca" "$ORIGIN_TLS/")"
equal "the same file by one variable alone" 0 "$(fetched "SSL_CERT_FILE=$ca" "$ORIGIN_TLS/")"
equal "the same file by --cacert" 0 "$(fetched "$ORIGIN_TLS/" --cacert "$ca")"
check "another file is another dataset" \
	test "$(fetched "SSL_CERT_FILE=$PWD/other.pem" "$ORIGIN_TLS/")" -gt 0

# Two mounts of one source that share nothing: status says so, and why.
mkdir "$T/m2"
SSL_CERT_FILE=$ca mount_penstock "$ORIGIN_TLS/"
SSL_CERT_FILE=$PWD/other.pem penstock mount "$ORIGIN_TLS/" "$T/m2" --cache-dir "$CACHE"
check "status says that mounts with other certificates share nothing" grep -q \
	"$T/m2 has the same source and shares no cached data .*(there: certificates of $PWD/other.pem; here: certificates of $ca)" \
	<(penstock status "$MNT")
penstock umount "$T/m2"
umount_penstock

check "without TLS: the first mount fetches" test "$(fetched "$ORIGIN/")" -gt 0
equal "without TLS: certificates do not matter" 0 "$(fetched "SSL_CERT_FILE=$system" "$ORIGIN/")"
equal "patterns in another order: nothing is fetched again" "0 0" \
	"$(fetched "$ORIGIN/" --exclude x --exclude y) $(fetched "$ORIGIN/" --exclude y --exclude x)"

# cacert=system: a site ignores what its users' environments trust.
CURL_CA_BUNDLE=$ca refused "--cacert system ignores CURL_CA_BUNDLE" certificate "$ORIGIN_TLS/" --cacert system
SSL_CERT_DIR=$PWD refused "--cacert system ignores SSL_CERT_DIR" certificate "$ORIGIN_TLS/" --cacert system
printf '[defaults]\ncacert = system\n[tls]\nsource = %s\n' "$ORIGIN_TLS/" >"$T/system.conf"
CURL_CA_BUNDLE=$ca refused "cacert = system in a file" certificate tls --config "$T/system.conf"

check_not "no secret is in the log" grep -Eq 'pass(:|%3A|%3a)word|opensesame' "$T/penstock.log"
in_caches() { grep -rlE 'pass:word|opensesame' "$T"/cache-*; }
check_not "no secret is in a cache" in_caches
