-- The second database of docker-compose.yml, made when Postgres first starts: Dagster's, beside the lake's catalogue.
CREATE DATABASE dagster;
