#!/bin/sh
# Creates the users and databases of Cuebook and Temporal. The Postgres image runs this once, for an empty volume.
set -eu
# psql reads the passwords from its environment: on its command line, others could see them.
psql --no-psqlrc --set ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
\getenv cuebook CUEBOOK_DB_PASSWORD
\getenv temporal TEMPORAL_DB_PASSWORD
CREATE ROLE cuebook LOGIN PASSWORD :'cuebook';
CREATE ROLE temporal LOGIN PASSWORD :'temporal';
CREATE DATABASE cuebook OWNER cuebook;
CREATE DATABASE temporal OWNER temporal;
CREATE DATABASE temporal_visibility OWNER temporal;
REVOKE CONNECT ON DATABASE cuebook, temporal, temporal_visibility FROM PUBLIC;
SQL
