#!/usr/bin/env sh
# Lint the report's JavaScript with the pinned ESLint. Skips, and says so, where node is absent or too old, or where
# npm cannot install it: the Python checks must not depend on node.
set -u
cd "$(dirname "$0")/../.." || exit 1
here=tools/eslint

skip() {
  echo "JavaScript is not linted: $1" >&2
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || skip "node and npm are not installed"
node -e 'const [a, b] = process.versions.node.split(".").map(Number);
  process.exit((a === 20 && b >= 19) || (a === 22 && b >= 13) || a >= 24 ? 0 : 1)' ||
  skip "ESLint needs node 20.19, 22.13 or 24 and newer; this is $(node --version)"

# npm writes this file last; an older one than the lock file belongs to other versions.
installed=$here/node_modules/.package-lock.json
if [ ! -e "$installed" ] || [ "$here/package-lock.json" -nt "$installed" ]; then
  npm ci --prefix "$here" --no-audit --no-fund --silent || skip "npm could not install ESLint"
  touch "$installed"
fi
exec "$here/node_modules/.bin/eslint" --config "$here/eslint.config.js" src/fedmerit/report/page
