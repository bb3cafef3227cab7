#!/bin/sh
# Debian's RabbitMQ for the test with another broker than Redis: only where CI asks for it, because the package brings a
# service that starts with the machine. Elsewhere install it yourself; without it the test is skipped and says so.
set -eu

if [ -z "${CI:-}" ] || [ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || [ "$(id -u)" != 0 ]; then
  exit 0
fi
command -v apt-get >/dev/null || exit 0

echo "installing rabbitmq-server ..."
apt="env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=300 -qq"
$apt update
$apt install --yes --no-install-recommends rabbitmq-server >/dev/null
