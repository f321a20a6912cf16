//! Durable state: journal, sled behind a narrow surface, backup, lock. Nothing else knows sled.
