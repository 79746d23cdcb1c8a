#!/bin/sh
# Fetches the published results that tests read, of three systems, from all of round v5.1 into the cache.
# Usage: tools/fetch_published.sh [URL [COMMIT]]   (of a git repository that has them)
set -eu
cd "$(dirname "$0")/.."
url=${1:-https://github.com/mlcommons/inference_results_v5.1}
commit=${2:-965182b03376a00fcae415c54e560e1c83937932}
to=$(.venv/bin/python -c 'from qsl.cache import cache_dir; print(cache_dir())')/published-v5.1
if [ -d "$to" ]; then
    echo "published: $to is there already"
    exit 0
fi
draft=$to.$$
trap 'rm -rf "$draft"' EXIT
git init -q "$draft"
while read -r submitter system benchmark; do
    for path in results/$system/$benchmark/ compliance/$system/$benchmark/ systems/$system.json \
        "measurements/$system/$benchmark/*/$system.json" "measurements/$system/$benchmark/*/user.conf"; do
        echo "/closed/$submitter/$path"
    done
done << END | git -C "$draft" sparse-checkout set --no-cone --stdin
RedHat XE8640_4xH100_vLLM llama3.1-8b
Intel 1-node-2S-GNR_128C llama3_1-8b
Intel 1-node-1x-BMG-Pro-B60-Dual llama3.1-8b-edge
END
git -C "$draft" remote add origin "$url"
git -C "$draft" fetch -q --depth 1 --filter=blob:none origin "$commit"
git -C "$draft" checkout -q FETCH_HEAD
rm -rf "$draft/.git"
mv "$draft" "$to"
echo "published: $(find "$to" -type f | wc -l) files in $to"
