#!/usr/bin/env bash
# Fails, with a diff, if the generated code or documents are not up to date. It runs build/codegen/generate.sh on a copy
# of this tree and does not change the tree itself.
set -o errexit -o nounset -o pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

cd "$root"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	[[ -e $file ]] && printf '%s\0' "$file"
done | tar --null --files-from=- --create --file=- | tar --extract --file=- --directory="$copy"

"$copy/build/codegen/generate.sh" "$copy"

fresh=true
for path in pkg/apis/config docs/config.md docs/feature-gates.md; do
	diff --recursive --unified "$root/$path" "$copy/$path" || fresh=false
done
if ! $fresh; then
	echo "generated files are out of date: run build/codegen/generate.sh and commit the changes" >&2
	exit 1
fi
