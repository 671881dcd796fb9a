BEGIN TRANSACTION;
CREATE TABLE audits (                -- objectives of the model on the server's rows (client -1), on clients' test rows
    round INTEGER NOT NULL, client INTEGER NOT NULL, objective TEXT NOT NULL, value REAL,   -- NULL where unknown
    PRIMARY KEY (round, client, objective)
) WITHOUT ROWID;
CREATE TABLE clients (client INTEGER PRIMARY KEY, name TEXT NOT NULL);
INSERT INTO "clients" VALUES(0,'0');
INSERT INTO "clients" VALUES(1,'1');
INSERT INTO "clients" VALUES(2,'2');
INSERT INTO "clients" VALUES(3,'3');
CREATE TABLE distances (             -- 1 - cos of the updates of every pair of the round's clients
    round INTEGER PRIMARY KEY, clients BLOB NOT NULL, pairs BLOB NOT NULL   -- int64; float32, (0,1), (0,2), ... (1,2)
);
CREATE TABLE earned (                -- how each client of a round came to its weight
    round INTEGER NOT NULL, client INTEGER NOT NULL,
    facts TEXT NOT NULL, criteria TEXT NOT NULL, normalised TEXT NOT NULL,   -- JSON objects by name
    score REAL NOT NULL, weight REAL NOT NULL,
    grp INTEGER NOT NULL,            -- the client's group, from 0
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
INSERT INTO "earned" VALUES(1,0,'{"samples": 203.0, "labels": 9.0}','{"LD": 9.0, "DS": 203.0}','{"LD": 0.9, "DS": 0.5205128205128206}',1.36846153846153839594e+00,2.07447428771329711594e-01,0);
INSERT INTO "earned" VALUES(1,1,'{"samples": 180.0, "labels": 10.0}','{"LD": 10.0, "DS": 180.0}','{"LD": 1.0, "DS": 0.46153846153846156}',1.4615384615384616751e+00,2.21557118980059891688e-01,0);
INSERT INTO "earned" VALUES(1,2,'{"samples": 390.0, "labels": 9.0}','{"LD": 9.0, "DS": 390.0}','{"LD": 0.9, "DS": 1.0}',1.8,2.72865083375442130098e-01,0);
INSERT INTO "earned" VALUES(1,3,'{"samples": 377.0, "labels": 10.0}','{"LD": 10.0, "DS": 377.0}','{"LD": 1.0, "DS": 0.9666666666666667}',1.96666666666666678509e+00,2.98130368873168294374e-01,0);
INSERT INTO "earned" VALUES(2,0,'{"samples": 203.0, "labels": 9.0}','{"LD": 9.0, "DS": 203.0}','{"LD": 0.9, "DS": 0.5205128205128206}',1.36846153846153839594e+00,2.07447428771329711594e-01,0);
INSERT INTO "earned" VALUES(2,1,'{"samples": 180.0, "labels": 10.0}','{"LD": 10.0, "DS": 180.0}','{"LD": 1.0, "DS": 0.46153846153846156}',1.4615384615384616751e+00,2.21557118980059891688e-01,0);
INSERT INTO "earned" VALUES(2,2,'{"samples": 390.0, "labels": 9.0}','{"LD": 9.0, "DS": 390.0}','{"LD": 0.9, "DS": 1.0}',1.8,2.72865083375442130098e-01,0);
INSERT INTO "earned" VALUES(2,3,'{"samples": 377.0, "labels": 10.0}','{"LD": 10.0, "DS": 377.0}','{"LD": 1.0, "DS": 0.9666666666666667}',1.96666666666666678509e+00,2.98130368873168294374e-01,0);
CREATE TABLE events (round INTEGER NOT NULL, client INTEGER, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('config','{"task":{"data":"digits","source":"folder","sample":1.0,"partition":"dirichlet","clients":4,"model":"default","shards":2,"alpha":0.5,"groups":[],"size":null,"smallest":1.0,"mix":0.0,"test":"default","attribute":"sex","against":0,"kinds":{},"server":0,"validation":0.2},"train":{"lr":0.5,"epochs":1,"batch":"full","momentum":0.0,"weight_decay":0.0,"prox":0.0},"recipe":{"name":"device_aware","priority":["LD","DS"],"normalise":"max","score":{"name":"prioritized","weights":null,"quantifier":null,"importances":null,"shapley":null,"interaction":null,"capacity":null,"rank":null,"top":null},"when_zero":"samples","strength":1.0,"search":null,"server":null,"groups":null,"reward":null},"run":{"rounds":2,"fraction":1.0,"schedule":null,"seed":3,"workers":1,"memory":null,"evaluate_every":1,"audit":[]}}');
INSERT INTO "meta" VALUES('cores','2');
INSERT INTO "meta" VALUES('fedmerit','0.1.0.dev145+gd9654126b');
INSERT INTO "meta" VALUES('machine','x86_64');
INSERT INTO "meta" VALUES('numpy','2.4.6');
INSERT INTO "meta" VALUES('python','3.11.7');
INSERT INTO "meta" VALUES('recipe','Recipe(criteria=(Reported(name=''LD'', family=<Family.DATA: ''data''>, fact=''labels'', about=''label diversity: number of distinct labels'', degree=False), Reported(name=''DS'', family=<Family.DATA: ''data''>, fact=''samples'', about=''dataset size: number of training rows'', degree=False)), score=Prioritized(), normalise=''max'', when_zero=''samples'', search=Backtracking(orders=''kendall'', reference=''last'', exchange=''batch'', adjust_on=''validation'', tolerance=0.01, judges=None, confidence=0.95, among=()), grouping=OneGroup(), reward=Whole(), own=None, acceptance=Acceptance(sigma=0.05), initial=0.0, rho=0.5)');
INSERT INTO "meta" VALUES('torch','2.13.0+cpu');
CREATE TABLE rewards (               -- what clients with their own models got back, and whether they took it
    round INTEGER NOT NULL, client INTEGER NOT NULL,
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL, accepted INTEGER NOT NULL,
    before REAL, after REAL,         -- the client's accuracy without and with it; NULL where it has no validation rows
    reason TEXT NOT NULL,            -- why a client could not take it; else empty
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
CREATE TABLE rounds (
    round INTEGER PRIMARY KEY,
    priority TEXT NOT NULL,          -- JSON list, most important first
    way TEXT, score TEXT,            -- the way in which the round was weighed, and its score; NULL where nobody was
    exchanges INTEGER NOT NULL, evaluations INTEGER NOT NULL,   -- what the search asked of the clients; models sent out
    tests INTEGER NOT NULL,          -- how often a client tested one of them
    groups INTEGER NOT NULL, cut REAL,   -- how many there were; the distance that kept them apart
    quality REAL,                    -- the clients' accuracy by which the search decided; NULL where it did not ask
    accuracy REAL, p10 REAL, p50 REAL, p90 REAL,   -- NULL where the round was not evaluated
    bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    seconds TEXT NOT NULL            -- JSON object: stage -> seconds
);
INSERT INTO "rounds" VALUES(1,'["LD", "DS"]','LD > DS','Prioritized()',1,2,8,1,NULL,1.42361111111111104943e-01,1.36490250696378823125e-01,8.77777777777777740153e-02,1.22971285892634202285e-01,1.96004993757802753462e-01,38560,38560,'{"train": 0.00897001400062436, "check": 0.00041718899956322275, "group": 2.165000023524044e-05, "weigh": 0.0009194269996442017, "aggregate": 0.0004108969997105305, "search": 0.005994817000100738, "reward": 1.2865000826423056e-05, "evaluate": 0.00208425199980411}');
INSERT INTO "rounds" VALUES(2,'["LD", "DS"]','LD > DS','Prioritized()',1,1,4,1,NULL,1.80555555555555552471e-01,2.17270194986072417986e-01,1.55043695380774032566e-01,2.12109862671660431843e-01,2.83333333333333325931e-01,38560,38560,'{"train": 0.004572049999296723, "check": 0.0002300790001754649, "group": 1.732300006551668e-05, "weigh": 0.0012082370003554388, "aggregate": 0.0002758350001386134, "search": 0.002300817000104871, "reward": 1.0419999853183981e-05, "evaluate": 0.0014772189997529495}');
CREATE TABLE tested (                -- every client's local test
    round INTEGER NOT NULL, client INTEGER NOT NULL, correct INTEGER NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (round, client)
) WITHOUT ROWID;
INSERT INTO "tested" VALUES(1,0,10,90);
INSERT INTO "tested" VALUES(1,1,7,90);
INSERT INTO "tested" VALUES(1,2,20,90);
INSERT INTO "tested" VALUES(1,3,12,89);
INSERT INTO "tested" VALUES(2,0,22,90);
INSERT INTO "tested" VALUES(2,1,13,90);
INSERT INTO "tested" VALUES(2,2,27,90);
INSERT INTO "tested" VALUES(2,3,16,89);
CREATE TABLE tried (                 -- the ways that a search thought of, in the order of visiting
    round INTEGER NOT NULL, place INTEGER NOT NULL,
    way TEXT NOT NULL, same TEXT NOT NULL,   -- JSON list: ways whose weights are so near that they count as this one
    quality REAL, exchange INTEGER, chosen INTEGER NOT NULL,   -- NULL where nobody was asked
    PRIMARY KEY (round, place)
) WITHOUT ROWID;
INSERT INTO "tried" VALUES(1,0,'LD > DS','[]',1.42361111111111104943e-01,1,1);
INSERT INTO "tried" VALUES(1,1,'DS > LD','[]',NULL,NULL,0);
INSERT INTO "tried" VALUES(2,0,'LD > DS','[]',1.80555555555555552471e-01,1,1);
INSERT INTO "tried" VALUES(2,1,'DS > LD','[]',NULL,NULL,0);
COMMIT;
PRAGMA user_version = 5;
