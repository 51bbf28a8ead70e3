"""What a search must find: texts, and for each what is asked of it.

The classes are those in which other engines fail; every probe stands for a question that a model asks
of its own history. ``NOT_FOUND`` holds what is asked and must find nothing.
"""

from __future__ import annotations

from typing import Final

TEXTS: Final[dict[str, str]] = {
    "camel": "const user = await getUserById(accountId); // HTTPServerError",
    "snake": "def load_config_file(path): raise FILE_NOT_FOUND_ERROR",
    "kebab": "git checkout feature-flag-cleanup && npm run build:web-app",
    "path": "edited packages/core/src/lib/token_meter.py and ./scripts/run-all.sh",
    "windows": r"C:\Users\Ada\AppData\Local\tool.exe failed",
    "error": "TypeError: Cannot read properties of undefined (reading 'map') at app.js:41:7",
    "errno": "ENOENT: no such file or directory, open '/etc/app.d/main.conf'",
    "trace": 'File "/srv/app/views.py", line 218, in dispatch_request',
    "version": "upgraded libfoo from v2.14.3-rc1 to 2.15.0+build.7",
    "hash": "commit 813227e1144add70be0f fixed it; image sha256:9f86d081884c7d65",
    "uuid": "request 550e8400-e29b-41d4-a716-446655440000 timed out after 30s",
    "json": '{"max_retries": 7, "retry-after": "120ms", "hosts": ["db-01.internal"]}',
    "url": "see https://example.org/api/v2/users?limit=50#section-3 and mail ops@example.org",
    "operators": "if (a !== b && c => d || e ?? f) { x += 1; p->next = q::r; }",
    "languages": "rewritten from C++17 and C# into Rust and F#",
    "shell": "find . -name '*.log' -mtime +7 | xargs rm -rf --one-file-system",
    "sql": "SELECT count(*) FROM order_items WHERE price >= 19.99 GROUP BY sku",
    "chinese": "用户要求把数据库迁移到北京的服务器",
    "japanese": "今日は東京タワーへ行きました。テスト環境の設定",
    "korean": "한국어 검색이 되지 않는 문제를 고쳤습니다",
    "thai": "ระบบค้นหาภาษาไทยใช้งานได้",
    "russian": "Ошибка подключения к серверу, повторите позже: Ёлка",
    "german": "Die Größe der Straße in Köln wurde geändert",
    "french": "Le café naïve déjà vu à l'hôtel",
    "greek": "Η Αθήνα είναι η πρωτεύουσα",
    "arabic": "تم إصلاح الخطأ في قاعدة البيانات",
    "hindi": "दिल्ली में सर्वर बंद है",
    "emoji": "ship it 🎉 then 👩‍🚀 and ⚠️ low disk",
    "width": "ＡＢＣ－１２３ and ﬁle ofﬁce",
    "math": "x² + y² ≤ 25 → π ≈ 3.14159",
    "inflected": "the connections were failing while the workers retried deploying",
    "plain": "please receive the necessary dependency before the deployment finishes",
    "number": "costs 1,234.56 EUR on 2026-03-14 at 09:15:30, port 8123",
    "money": "budget is $4,200 (15% off)",
    "csv": "id;name;value\n7;alpha-beta;0.003\n8;gamma;NaN",
    "base64": "token dGhpcyBpcyBhIHRlc3Q= was rejected",
}
"""By the name of a record, what it holds."""

# What is asked, and the record that must be the first hit: one class of probe after the other.
FOUND: Final[dict[str, list[tuple[str, str]]]] = {
    "identifiers": [
        ("getUserById", "camel"), ("accountId", "camel"), ("HTTPServerError", "camel"),
        ("load_config_file", "snake"), ("FILE_NOT_FOUND_ERROR", "snake"), ("token_meter.py", "path"),
        ("feature-flag-cleanup", "kebab"), ("build:web-app", "kebab"), ("order_items", "sql"),
    ],
    "identifiers in another case style": [
        ("get_user_by_id", "camel"), ("getuserbyid", "camel"), ("GetUserById", "camel"),
        ("loadConfigFile", "snake"), ("loadconfigfile", "snake"), ("fileNotFoundError", "snake"),
        ("tokenMeter", "path"), ("http_server_error", "camel"), ("maxRetries", "json"),
    ],
    "parts of identifiers as words": [
        ("user id", "camel"), ("server error", "camel"), ("account", "camel"), ("config", "snake"),
        ("token meter", "path"), ("flag cleanup", "kebab"), ("retries", "json"), ("items", "sql"),
    ],
    "paths and files": [
        ("packages/core/src", "path"), ("./scripts/run-all.sh", "path"), ("run-all.sh", "path"),
        ("AppData\\Local", "windows"), ("tool.exe", "windows"), ("/etc/app.d/main.conf", "errno"),
        ("views.py line 218", "trace"), ("dispatch_request", "trace"),
    ],
    "error strings": [
        ("Cannot read properties of undefined", "error"), ("app.js:41:7", "error"),
        ("(reading 'map')", "error"), ("ENOENT", "errno"), ('"no such file or directory, open"', "errno"),
    ],
    "versions, hashes, numbers": [
        ("v2.14.3-rc1", "version"), ("2.14.3", "version"), ("2.15.0", "version"), ("813227e", "hash"),
        ("813227e1144add70be0f", "hash"), ("9f86d08", "hash"), ("550e8400-e29b", "uuid"),
        ("550e8400*", "uuid"), ("1,234.56", "number"), ("2026-03-14", "number"), ("09:15", "number"),
        ("port 8123", "number"), ("$4,200", "money"), ("15%", "money"), ("19.99", "sql"),
        ("3.14159", "math"), ("0.003", "csv"), ("120ms", "json"),
    ],
    "operators and signs": [
        ("!==", "operators"), ("=>", "operators"), ("??", "operators"), ("p->next", "operators"),
        ("q::r", "operators"), ("C++", "languages"), ("C++17", "languages"), ("C#", "languages"),
        (">= 19.99", "sql"), ("--one-file-system", "shell"), ("'*.log'", "shell"),
    ],
    "web": [
        ("https://example.org/api/v2/users?limit=50#section-3", "url"), ("api/v2/users", "url"),
        ("ops@example.org", "url"), ("db-01.internal", "json"), ("dGhpcyBpcyBhIHRlc3Q=", "base64"),
    ],
    "Chinese, Japanese, Korean, Thai": [
        ("库", "chinese"), ("北京", "chinese"), ("数据库", "chinese"), ("迁移到北京", "chinese"),
        ("東", "japanese"), ("東京", "japanese"), ("タワー", "japanese"), ("設定", "japanese"),
        ("한국", "korean"), ("검", "korean"), ("문제를", "korean"), ("ภาษาไทย", "thai"),
    ],
    "other scripts and diacritics": [
        ("ошибка", "russian"), ("елка", "russian"), ("grosse", "german"), ("strasse", "german"),
        ("koln", "german"), ("KÖLN", "german"), ("cafe", "french"), ("hotel", "french"),
        ("αθηνα", "greek"), ("الخطأ", "arabic"), ("दिल्ली", "hindi"), ("abc-123", "width"),
        ("file office", "width"),
    ],
    "emoji and symbols": [
        ("🎉", "emoji"), ("👩‍🚀", "emoji"), ("⚠️", "emoji"), ("⚠", "emoji"), ("≤", "math"), ("π", "math"),
        ("x²", "math"),
    ],
    "inflections": [
        ("connection", "inflected"), ("connecting", "inflected"), ("fails", "inflected"),
        ("worker", "inflected"), ("deployed", "inflected"), ("connects", "inflected"),
        ("finish", "plain"), ("dependencies", "plain"),
    ],
    "misspellings": [
        ("recieve", "plain"), ("neccessary", "plain"), ("dependancy", "plain"), ("deploymant", "plain"),
        ("conections", "inflected"), ("upgradde", "version"),
    ],
    "substrings": [
        ("tUserB", "camel"), ("ropertie", "error"), ("onfig_fi", "snake"), ("d/mai", "errno"),
        ("ecessar", "plain"), ("京タ", "japanese"),
    ],
    "questions": [
        ("which file was it that could not be opened, the main.conf thing?", "errno"),
        ("what did they say about the budget", "money"),
        ("when was libfoo upgraded and to which version", "version"),
    ],
}  # fmt: skip

NOT_FOUND: Final[list[str]] = ["xyzzy", "zzqqx_plugh", "\"reading 'filter'\"", "🦄", "龍", "===="]
"""What is asked and is nowhere."""
