-- A store of layout 2, as it was written by the version that had it.
BEGIN TRANSACTION;
CREATE TABLE bindings (
	source_id INTEGER NOT NULL,
	epoch BIGINT NOT NULL,
	partition_id INTEGER NOT NULL,
	position BIGINT NOT NULL,
	PRIMARY KEY (source_id, epoch, partition_id),
	FOREIGN KEY(source_id) REFERENCES sources (id),
	FOREIGN KEY(partition_id) REFERENCES partitions (id)
)
 WITHOUT ROWID

;
INSERT INTO "bindings" VALUES(1,0,1,5);
INSERT INTO "bindings" VALUES(1,1,1,9);
INSERT INTO "bindings" VALUES(2,1,2,1);
CREATE TABLE epochs (
	flow_id INTEGER NOT NULL,
	epoch BIGINT NOT NULL,
	minted_at VARCHAR(27) NOT NULL,
	published_at VARCHAR(27),
	write_id VARCHAR(32) NOT NULL,
	PRIMARY KEY (flow_id, epoch),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
)
 WITHOUT ROWID

;
INSERT INTO "epochs" VALUES(1,0,'2026-11-20T17:00:00.000000Z','2026-11-20T17:00:00.000000Z','cccccccccccccccccccccccccccccccc');
INSERT INTO "epochs" VALUES(1,1,'2026-11-20T17:00:00.000000Z',NULL,'dddddddddddddddddddddddddddddddd');
CREATE TABLE flows (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	incarnation VARCHAR(32) NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	upper BIGINT NOT NULL,
	published BIGINT NOT NULL,
	since BIGINT NOT NULL,
	PRIMARY KEY (id),
	UNIQUE (name)
);
INSERT INTO "flows" VALUES(1,'shop','bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb','2026-11-20T17:00:00.000000Z',2,1,0);
CREATE TABLE leases (
	flow_id INTEGER NOT NULL,
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
INSERT INTO "leases" VALUES(1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','ada','one','kernel:1',10,5,'2026-11-20T17:00:00.000000Z','2026-11-20T17:00:00.000000Z');
CREATE TABLE outputs (
	id INTEGER NOT NULL,
	flow_id INTEGER NOT NULL,
	name TEXT NOT NULL,
	source TEXT NOT NULL,
	config TEXT NOT NULL,
	failed_at BIGINT,
	failure TEXT,
	PRIMARY KEY (id),
	UNIQUE (flow_id, name),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
INSERT INTO "outputs" VALUES(1,1,'raw','orders','{"kind": "delta", "path": "/lake/raw"}',NULL,NULL);
INSERT INTO "outputs" VALUES(2,1,'clicks','clicks','{"kind": "parquet"}',1,'{"code": "TG-0102", "evidence": {"flow": "shop", "kind": "output", "name": "clicks"}}');
CREATE TABLE partitions (
	id INTEGER NOT NULL,
	source_id INTEGER NOT NULL,
	"key" TEXT NOT NULL,
	detail TEXT,
	PRIMARY KEY (id),
	UNIQUE (source_id, "key"),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
INSERT INTO "partitions" VALUES(1,1,'p0','{"path": "/in/1"}');
INSERT INTO "partitions" VALUES(2,2,'c',NULL);
CREATE TABLE seals (
	source_id INTEGER NOT NULL,
	epoch BIGINT NOT NULL,
	PRIMARY KEY (source_id),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
INSERT INTO "seals" VALUES(2,1);
CREATE TABLE sources (
	id INTEGER NOT NULL,
	flow_id INTEGER NOT NULL,
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
INSERT INTO "sources" VALUES(1,1,'orders',NULL,'{"kind": "file"}','[["id", "int64", true]]',NULL,NULL);
INSERT INTO "sources" VALUES(2,1,'clicks','topic 7','{}',NULL,1,'{"code": "TG-0102", "evidence": {"flow": "shop", "kind": "source", "name": "clicks"}}');
CREATE TABLE store_layout (
	version INTEGER NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	PRIMARY KEY (version)
);
INSERT INTO "store_layout" VALUES(2,'2026-11-20T17:00:00.000000Z');
CREATE INDEX epochs_by_time ON epochs (flow_id, minted_at);
CREATE INDEX bindings_by_position ON bindings (partition_id, position);
COMMIT;
