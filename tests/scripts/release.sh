#!/usr/bin/env bash
# scripts/release refuses a tree that differs from its commit, and versions that differ.
. "$(dirname "$0")/../lib.sh"
requires git

version=$(sed -nE 's/^AC_INIT\(\[penstock\], \[([^]]*)\].*/\1/p' "$top_srcdir/configure.ac")
files=(
	configure.ac CHANGELOG.md debian/changelog man loader/include/penstock.h loader/python/pyproject.toml
	scripts/penstock.spec scripts/release
)
mkdir "$T/tree"
(cd "$top_srcdir" && tar -c "${files[@]}") | tar -C "$T/tree" -x
cd "$T/tree"
chmod -R u+w .
sed -i "0,/^## .*/s//## $version, 2026-11-23/" CHANGELOG.md
export GIT_CONFIG_GLOBAL=/dev/null
commit() { git add -A && git -c user.name=a -c user.email=a@b commit -q -m x; }
git init -q . 2>"$T/err"
commit

check "a tree with one version is accepted" scripts/release --check
# refused WHAT TEXT: scripts/release must fail with TEXT.
refused() {
	local rc=0
	scripts/release --check >"$T/out" 2>&1 || rc=$?
	equal "$1 is refused" 1 "$rc"
	check "$1 is named" grep -F -- "$2" "$T/out"
}
touch more
refused "a file that git does not know" more
rm more
echo >>configure.ac
refused "a change that is not committed" configure.ac
git checkout -q .

# differs FILE SED: changes the version in FILE, which must be refused.
differs() {
	sed -i -E "$2" "$1"
	commit
	refused "another version in $1" "$1"
	git reset -q --hard HEAD~
}
differs configure.ac "s/^(AC_INIT\(\[penstock\], \[)[^]]*/\1$version-dev/"
differs loader/include/penstock.h 's/^(#define PENSTOCK_VERSION_MINOR ).*/\199/'
grep -L '^\.so ' man/*.[135] >"$T/pages"
while read -r page; do
	differs "$page" 's/^(\.TH .*"penstock )[^"]*/\199.0.0/'
done <"$T/pages"
differs loader/python/pyproject.toml 's/^version = .*/version = "99.0.0"/'
differs scripts/penstock.spec 's/^(Version: +).*/\199.0.0/'
differs scripts/penstock.spec 's/^(\* .* - ).*-1$/\199.0.0-1/'
differs debian/changelog '1s/\(.*\)/(99.0.0-1)/'
differs CHANGELOG.md '0,/^## .*/s//## Unreleased/'
differs CHANGELOG.md '0,/^## .*/s//## 99.0.0, 2026-11-23/'
check "the tree without changes is accepted again" scripts/release --check
mkdir "$T/full"
touch "$T/full/a"
check_not "a folder that is not empty is refused" scripts/release --quick "$T/full"
