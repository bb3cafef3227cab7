#!/bin/sh
# Debian's Chromium for the tests of the browser engine: installed when it is missing and we may, else said how.
set -eu

for name in "${SCAN_BROWSER:-chromium}" chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done

# The font is for screenshots: without any, pages are drawn as boxes. The sandbox helper is for kernels without
# unprivileged user namespaces.
packages="chromium chromium-sandbox fonts-dejavu-core"
if ! command -v apt-get >/dev/null; then
  echo "No browser was found. Install Chromium or Chrome, or set SCAN_BROWSER to its path." >&2
  exit 1
fi
if [ "$(id -u)" = 0 ]; then
  as_root=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  echo "No browser was found. Run: sudo apt-get install --no-install-recommends $packages" >&2
  echo "or set SCAN_BROWSER to the path of Chromium or Chrome." >&2
  exit 1
fi

echo "installing $packages ..."
apt="$as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq"
$apt update
$apt install --yes --no-install-recommends $packages >/dev/null
