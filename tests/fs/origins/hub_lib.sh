# shellcheck shell=bash disable=SC2154,SC2034
# A Hugging Face Hub for a test: see hub_server.py. Read after lib.sh.

# start_hub: serves $T/hub. Sets HF_ENDPOINT, and $hub, the folder of the server's settings. The
# user's own token is ignored.
start_hub() {
	hub=$T/hub-state
	mkdir -p "$hub" "$T/hub/commits" "$T/hub/refs"
	unset HF_TOKEN HUGGING_FACE_HUB_TOKEN HF_TOKEN_PATH
	export HF_HOME=$T/hf-home
	mkdir -p "$HF_HOME"
	"$python" "$top_srcdir/tests/fs/origins/hub_server.py" "$hub" "$T/hub" >"$T/hub.log" 2>&1 &
	wait_until 30 test -e "$hub/hub" || die "the hub starts"
	HF_ENDPOINT=$(cat "$hub/hub")
	export HF_ENDPOINT
}

# commit SHA-LETTER: makes the folder of the commit whose SHA is 40 times the letter, and prints its path.
commit() {
	local sha
	sha=$(printf "%.0s$1" {1..40})
	mkdir -p "$T/hub/commits/$sha"
	echo "$T/hub/commits/$sha"
}

# point REF SHA-LETTER: makes REF point to that commit.
point() {
	printf "%.0s$2" {1..40} >"$T/hub/refs/$1.new"
	mv "$T/hub/refs/$1.new" "$T/hub/refs/$1"
}

# tell NAME [WORDS]: makes a setting of the server; forget NAME: removes it.
tell() {
	echo "${2-}" >"$hub/$1.new"
	mv "$hub/$1.new" "$hub/$1"
}
forget() {
	rm -f "$hub/$1"
}

# asked WHO METHOD [PART-OF-PATH [STATUS]]: prints how many such requests came since forget requests.log.
asked() {
	awk -v who="$1" -v method="$2" -v part="${3-}" -v status="${4-}" '$1 == who && $2 == method &&
		index($3, part) && (status == "" || $4 == status)' "$hub/requests.log" 2>/dev/null | wc -l
}
