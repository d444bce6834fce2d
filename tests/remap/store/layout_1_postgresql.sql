-- A store of layout 1 on PostgreSQL, as it was written by the version that had it.
CREATE TABLE flows (
	id BIGSERIAL NOT NULL,
	name TEXT NOT NULL,
	incarnation VARCHAR(32) NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	upper BIGINT NOT NULL,
	published BIGINT NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
CREATE TABLE store_layout (
	version INTEGER NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	PRIMARY KEY (version)
);
CREATE TABLE epochs (
	flow_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	minted_at VARCHAR(27) NOT NULL,
	published_at VARCHAR(27),
	write_id VARCHAR(32) NOT NULL,
	PRIMARY KEY (flow_id, epoch),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE INDEX epochs_by_time ON epochs (flow_id, minted_at);
CREATE TABLE leases (
	flow_id BIGINT NOT NULL,
	token VARCHAR(32) NOT NULL,
	holder TEXT NOT NULL,
	host TEXT NOT NULL,
	boot TEXT NOT NULL,
	pid BIGINT NOT NULL,
	process_started BIGINT,
	since VARCHAR(27) NOT NULL,
	renewed_at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE outputs (
	id BIGSERIAL NOT NULL,
	flow_id BIGINT NOT NULL,
	name TEXT NOT NULL,
	source TEXT NOT NULL,
	config TEXT NOT NULL,
	schema TEXT,
	upper BIGINT NOT NULL,
	rows BIGINT NOT NULL,
	bytes BIGINT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (flow_id, name),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE sources (
	id BIGSERIAL NOT NULL,
	flow_id BIGINT NOT NULL,
	name TEXT NOT NULL,
	identity TEXT,
	config TEXT NOT NULL,
	schema TEXT,
	failed_at BIGINT,
	failure TEXT,
	PRIMARY KEY (id),
	UNIQUE (flow_id, name),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE partitions (
	id BIGSERIAL NOT NULL,
	source_id BIGINT NOT NULL,
	key TEXT NOT NULL,
	detail TEXT,
	PRIMARY KEY (id),
	UNIQUE (source_id, key),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
CREATE TABLE seals (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	PRIMARY KEY (source_id),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
CREATE TABLE bindings (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	partition_id BIGINT NOT NULL,
	position BIGINT NOT NULL,
	PRIMARY KEY (source_id, epoch, partition_id),
	FOREIGN KEY(source_id) REFERENCES sources (id),
	FOREIGN KEY(partition_id) REFERENCES partitions (id)
);
CREATE INDEX bindings_by_position ON bindings (partition_id, position);
INSERT INTO "flows" VALUES (1,'shop','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','2026-11-20T17:00:00.000000Z',2,1,0);
INSERT INTO "store_layout" VALUES (1,'2026-11-20T17:00:00.000000Z');
INSERT INTO "epochs" VALUES (1,0,'2026-11-20T17:00:00.000000Z','2026-11-20T17:00:00.000000Z','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "epochs" VALUES (1,1,'2026-11-20T17:00:00.000000Z',NULL,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "outputs" VALUES (1,1,'raw','orders','{"kind": "delta", "path": "/lake/raw"}',NULL,0,0,0);
INSERT INTO "outputs" VALUES (2,1,'clicks','clicks','{}',NULL,0,0,0);
INSERT INTO "sources" VALUES (1,1,'orders',NULL,'{"kind": "file"}','[["id", "int64", true]]',NULL,NULL);
INSERT INTO "sources" VALUES (2,1,'clicks',NULL,'{}',NULL,1,'{"code": "TG-0102", "evidence": {"flow": "shop", "kind": "source", "name": "clicks"}}');
INSERT INTO "partitions" VALUES (1,1,'p0','{"path": "/in/1"}');
INSERT INTO "partitions" VALUES (2,2,'c',NULL);
INSERT INTO "seals" VALUES (2,1);
INSERT INTO "bindings" VALUES (1,0,1,5);
INSERT INTO "bindings" VALUES (1,1,1,9);
INSERT INTO "bindings" VALUES (2,1,2,1);
SELECT setval('flows_id_seq', (SELECT max(id) FROM flows));
SELECT setval('outputs_id_seq', (SELECT max(id) FROM outputs));
SELECT setval('sources_id_seq', (SELECT max(id) FROM sources));
SELECT setval('partitions_id_seq', (SELECT max(id) FROM partitions));
