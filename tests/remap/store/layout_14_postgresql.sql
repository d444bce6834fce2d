-- A store of layout 14 on PostgreSQL: its tables as the version that has it makes them, with the rows of layout_12.sql.
CREATE TABLE flows (
	id BIGSERIAL NOT NULL,
	name TEXT NOT NULL,
	incarnation VARCHAR(32) NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	upper BIGINT NOT NULL,
	published BIGINT NOT NULL,
	since BIGINT NOT NULL,
	decisions BIGINT,
	rate BIGINT,
	PRIMARY KEY (id),
	UNIQUE (name)
);
CREATE TABLE store_layout (
	version INTEGER NOT NULL,
	created_at VARCHAR(27) NOT NULL,
	PRIMARY KEY (version)
);
CREATE TABLE holds (
	flow_id BIGINT NOT NULL,
	owner TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id, owner),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE stalls (
	flow_id BIGINT NOT NULL,
	kind VARCHAR(6) NOT NULL,
	name TEXT NOT NULL,
	since VARCHAR(27) NOT NULL,
	error TEXT NOT NULL,
	PRIMARY KEY (flow_id, kind, name),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
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
	failed_at BIGINT,
	failure TEXT,
	held BIGINT,
	told BIGINT,
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
	clock TEXT,
	folded BIGINT,
	PRIMARY KEY (id),
	UNIQUE (flow_id, name),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE timeline (
	flow_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	minted_at VARCHAR(27) NOT NULL,
	published_at VARCHAR(27),
	write_id VARCHAR(32) NOT NULL,
	digest VARCHAR(32),
	PRIMARY KEY (flow_id, epoch),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE INDEX timeline_by_time ON timeline (flow_id, minted_at);
CREATE TABLE incarnations (
	source_id BIGINT NOT NULL,
	number BIGINT NOT NULL,
	began_at BIGINT NOT NULL,
	identity TEXT,
	at VARCHAR(27) NOT NULL,
	reason TEXT NOT NULL,
	PRIMARY KEY (source_id, number),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
CREATE TABLE losses (
	id BIGSERIAL NOT NULL,
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	partition TEXT NOT NULL,
	lower BIGINT NOT NULL,
	upper BIGINT NOT NULL,
	at VARCHAR(27) NOT NULL,
	code VARCHAR(16) NOT NULL,
	reason TEXT NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(source_id) REFERENCES sources (id)
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
CREATE TABLE source_states (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	state TEXT NOT NULL,
	PRIMARY KEY (source_id, epoch),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);
CREATE TABLE changes (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	partition_id BIGINT NOT NULL,
	position BIGINT NOT NULL,
	PRIMARY KEY (source_id, epoch, partition_id),
	FOREIGN KEY(source_id) REFERENCES sources (id),
	FOREIGN KEY(partition_id) REFERENCES partitions (id)
);
CREATE INDEX changes_by_partition ON changes (source_id, partition_id, epoch, position);
CREATE VIEW epochs AS SELECT f.name AS flow, t.epoch AS epoch, t.minted_at AS minted_at, t.published_at AS published_at,
               t.epoch < f.published AS published
        FROM flows f
        JOIN timeline t ON t.flow_id = f.id;
CREATE VIEW bindings AS SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, c.epoch AS epoch,
               p.key AS partition,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = c.source_id AND e.partition_id = c.partition_id
                               AND e.epoch < c.epoch AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS lower,
               c.position AS position
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id
        LEFT JOIN incarnations i ON i.source_id = c.source_id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = c.source_id AND n.began_at <= c.epoch);
CREATE VIEW progress AS SELECT f.name AS flow, s.name AS source, coalesce(i.number, 0) AS incarnation, p.key AS partition,
               c.position AS position, c.epoch AS epoch,
               coalesce((SELECT e.position FROM changes e
                         WHERE e.source_id = s.id AND e.partition_id = p.id
                               AND e.epoch < f.published AND e.epoch >= coalesce(i.began_at, 0)
                         ORDER BY e.epoch DESC LIMIT 1), 0) AS published_position,
               x.source_id IS NOT NULL AS sealed
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN partitions p ON p.source_id = s.id
        LEFT JOIN incarnations i ON i.source_id = s.id AND i.number = (
            SELECT max(n.number) FROM incarnations n WHERE n.source_id = s.id)
        JOIN changes c ON c.source_id = s.id AND c.partition_id = p.id AND c.epoch = (
            SELECT max(e.epoch) FROM changes e
            WHERE e.source_id = s.id AND e.partition_id = p.id AND e.epoch >= coalesce(i.began_at, 0))
        LEFT JOIN seals x ON x.source_id = s.id;
CREATE VIEW gaps AS SELECT f.name AS flow, s.name AS source, l.epoch AS epoch, l.partition AS partition, l.lower AS lower,
               l.upper AS upper, l.at AS at, l.code AS code, l.reason AS reason
        FROM flows f
        JOIN sources s ON s.flow_id = f.id
        JOIN losses l ON l.source_id = s.id;
CREATE TABLE backfills (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	start BIGINT NOT NULL,
	cutover BIGINT NOT NULL,
	mode VARCHAR(8) NOT NULL,
	steps VARCHAR(32) NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id, output),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE units (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	lower BIGINT NOT NULL,
	part BIGINT DEFAULT '0' NOT NULL,
	upper BIGINT NOT NULL,
	partition TEXT DEFAULT '' NOT NULL,
	position BIGINT DEFAULT '0' NOT NULL,
	job VARCHAR(32) NOT NULL,
	columns TEXT NOT NULL,
	files TEXT NOT NULL,
	rows BIGINT NOT NULL,
	PRIMARY KEY (flow_id, output, lower, part),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE pauses (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	reason VARCHAR(16) NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id, output, reason),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE replacements (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	edition VARCHAR(32) NOT NULL,
	code TEXT NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id, output),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);

CREATE TABLE earlier_columns (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	incarnation BIGINT NOT NULL,
	columns TEXT NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (source_id, epoch),
	FOREIGN KEY(source_id) REFERENCES sources (id)
);

CREATE TABLE earlier_positions (
	source_id BIGINT NOT NULL,
	epoch BIGINT NOT NULL,
	partition_id BIGINT NOT NULL,
	position BIGINT NOT NULL,
	PRIMARY KEY (source_id, epoch, partition_id),
	FOREIGN KEY(source_id) REFERENCES sources (id),
	FOREIGN KEY(partition_id) REFERENCES partitions (id)
);
CREATE TABLE codes (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	code TEXT NOT NULL,
	at VARCHAR(27) NOT NULL,
	PRIMARY KEY (flow_id, output, epoch),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
CREATE TABLE starts (
	flow_id BIGINT NOT NULL,
	output TEXT NOT NULL,
	said TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	at VARCHAR(27) NOT NULL,
	timestamps TEXT,
	stamp BIGINT,
	PRIMARY KEY (flow_id, output),
	FOREIGN KEY(flow_id) REFERENCES flows (id)
);
INSERT INTO flows (id, name, incarnation, created_at, upper, published, since, decisions, rate) VALUES (1, 'shop', 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', '2026-11-20T17:00:00.000000Z', 2, 1, 0, 3, 500);
INSERT INTO stalls (flow_id, kind, name, since, error) VALUES (1, 'output', 'raw', '2026-11-20T17:00:00.000000Z', '{"code": "TG-0435", "evidence": {"actual": 0, "expected": 1, "output": "shop:raw", "table": "/lake/raw"}}');
INSERT INTO store_layout (version, created_at) VALUES (14, '2026-11-20T17:00:00.000000Z');
INSERT INTO timeline (flow_id, epoch, minted_at, published_at, write_id, digest) VALUES (1, 0, '2026-11-20T17:00:00.000000Z', '2026-11-20T17:00:00.000000Z', 'cccccccccccccccccccccccccccccccc', 'ac1f16be6df62a2d053414319568753c');
INSERT INTO timeline (flow_id, epoch, minted_at, published_at, write_id, digest) VALUES (1, 1, '2026-11-20T17:00:00.000000Z', NULL, 'dddddddddddddddddddddddddddddddd', 'e6c4fa35e8f49495a3b3b609e40d1e08');
INSERT INTO leases (flow_id, token, holder, host, boot, pid, process_started, since, renewed_at) VALUES (1, 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'ada', 'one', 'kernel:1', 10, 5, '2026-11-20T17:00:00.000000Z', '2026-11-20T17:00:00.000000Z');
INSERT INTO outputs (id, flow_id, name, source, config, failed_at, failure, held, told) VALUES (1, 1, 'raw', 'orders', '{"kind": "delta", "path": "/lake/raw"}', NULL, NULL, 1, 1);
INSERT INTO outputs (id, flow_id, name, source, config, failed_at, failure) VALUES (2, 1, 'clicks', 'clicks', '{"kind": "parquet"}', 1, '{"code": "TG-0102", "evidence": {"flow": "shop", "kind": "output", "name": "clicks"}}');
INSERT INTO sources (id, flow_id, name, identity, config, schema, failed_at, failure, clock) VALUES (1, 1, 'orders', NULL, '{"kind": "file"}', '[["id", "int64", true]]', NULL, NULL, 'partitioned');
INSERT INTO sources (id, flow_id, name, identity, config, schema, failed_at, failure, clock) VALUES (2, 1, 'clicks', 'topic 7', '{}', NULL, 1, '{"code": "TG-0102", "evidence": {"flow": "shop", "kind": "source", "name": "clicks"}}', 'partitioned');
INSERT INTO partitions (id, source_id, key, detail) VALUES (1, 1, 'p0', '{"path": "/in/1"}');
INSERT INTO partitions (id, source_id, key, detail) VALUES (2, 2, 'c', NULL);
INSERT INTO seals (source_id, epoch) VALUES (2, 1);
INSERT INTO changes (source_id, epoch, partition_id, position) VALUES (1, 0, 1, 5);
INSERT INTO changes (source_id, epoch, partition_id, position) VALUES (1, 1, 1, 9);
INSERT INTO changes (source_id, epoch, partition_id, position) VALUES (2, 1, 2, 1);
INSERT INTO incarnations (source_id, number, began_at, identity, at, reason) VALUES (1, 1, 0, 'topic 8', '2026-11-20T17:00:00.000000Z', 'TG-0406');
INSERT INTO source_states (source_id, epoch, state) VALUES (2, 1, '{"kind":"http/etag","source_id":"clicks","value":{"json":{"etag":"B"}},"watermark":null}');
INSERT INTO holds (flow_id, owner, epoch, at) VALUES (1, 'report', 0, '2026-11-20T17:00:00.000000Z');
INSERT INTO losses (id, source_id, epoch, partition, lower, upper, at, code, reason) VALUES (1, 2, 1, 'c', 1, 4, '2026-11-20T17:00:00.000000Z', 'TG-0406', 'retention overtook the flow');
INSERT INTO backfills (flow_id, output, start, cutover, mode, steps, at) VALUES (1, 'clicks', 0, 1, 'faithful', 'dddddddddddddddddddddddddddddddd', '2026-11-20T17:00:00.000000Z');
INSERT INTO units (flow_id, output, lower, part, upper, partition, position, job, columns, files, rows) VALUES (1, 'clicks', 0, 0, 1, '', 0, 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', '[["id", "int64", true], ["_epoch", "int64", true]]', '{"files": [{"bytes": 90, "first_epoch": 0, "last_epoch": 0, "path": "_staged/eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee/part-0.parquet", "rows": 1}]}', 1);
INSERT INTO units (flow_id, output, lower, part, upper, partition, position, job, columns, files, rows) VALUES (1, 'clicks', 1, 0, 1, 'c0', 3, 'dddddddddddddddddddddddddddddddd', '[["id", "int64", true], ["_epoch", "int64", true]]', '{"files": [{"bytes": 90, "first_epoch": 1, "last_epoch": 1, "path": "_staged/dddddddddddddddddddddddddddddddd/part-0.parquet", "rows": 1}]}', 1);
INSERT INTO pauses (flow_id, output, reason, at) VALUES (1, 'clicks', 'operator', '2026-11-20T17:00:00.000000Z');
INSERT INTO starts (flow_id, output, said, epoch, at, timestamps, stamp) VALUES (1, 'clicks', '"now"', 1, '2026-11-20T17:00:00.000000Z', '"collapse"', 0);
INSERT INTO codes (flow_id, output, epoch, code, at) VALUES (1, 'raw', 0, '["cpython-311-a70d0d0a-0", [["the stream that it reads", "0123456789abcdef", false]]]', '2026-11-20T17:00:00.000000Z');
INSERT INTO replacements (flow_id, output, edition, code, at) VALUES (1, 'raw', 'ffffffffffffffffffffffffffffffff', '["cpython-311-a70d0d0a-0", []]', '2026-11-20T17:00:00.000000Z');
INSERT INTO earlier_columns (source_id, epoch, incarnation, columns, at) VALUES (1, 1, 0, '[["old", "int64", true]]', '2026-11-20T17:00:00.000000Z');
INSERT INTO earlier_positions (source_id, epoch, partition_id, position) VALUES (1, 1, 1, 5);
SELECT setval('flows_id_seq', 1);
SELECT setval('outputs_id_seq', 2);
SELECT setval('sources_id_seq', 2);
SELECT setval('partitions_id_seq', 2);
SELECT setval('losses_id_seq', 1);
