#!/bin/sh
# Creates or upgrades the tables of Temporal. The password is in SQL_PASSWORD.
set -eu
schemas=/etc/temporal/schema/postgresql/v12
for part in temporal:temporal temporal_visibility:visibility; do
  tool="temporal-sql-tool --plugin postgres12 --endpoint postgres --port 5432 --user temporal --database ${part%:*}"
  $tool setup-schema --version 0.0
  $tool update-schema --schema-dir "$schemas/${part#*:}/versioned"
done
