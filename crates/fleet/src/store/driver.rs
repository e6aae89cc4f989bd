//! The little that two databases do differently. Everything else is in [`super::statements`], once for both.

use super::seal::Seal;
use crate::error::{Error, Result};
use async_trait::async_trait;
use tokio::sync::watch;

/// How much a write may lose when the machine loses power. `kill -9` never loses anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Nothing.
    Full,
    /// The last moments, never consistency.
    Lazy,
}

#[async_trait]
pub trait Driver: Send + Sync + 'static {
    type Transaction: Transaction;

    /// Selects `(body, version)` of the oldest ready desk of a pool, so that no other transaction selects it too.
    const CLAIM: &'static str;
    /// Tells other processes of new events when the transaction is committed.
    const ANNOUNCE: Option<&'static str>;

    async fn begin(&self, durability: Durability) -> Result<Self::Transaction>;
    /// One statement that changes nothing.
    async fn read(&self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>>;
    /// What secrets are sealed with; none until the store has got its key.
    fn seal(&self) -> Option<&Seal>;
    fn set_seal(&self, seal: Seal);

    /// Changes with each piece of news.
    fn news(&self) -> &watch::Sender<u64>;
}

#[async_trait]
pub trait Transaction: Send {
    async fn rows(&mut self, statement: &'static str, values: Vec<Value>) -> Result<Vec<Row>>;
    /// Returns the number of rows that it changed.
    async fn run(&mut self, statement: &'static str, values: Vec<Value>) -> Result<u64>;
    /// Without it, everything is undone, now ([`Transaction::undo`]) or soon (drop).
    async fn commit(self) -> Result<()>;
    async fn undo(self);
}

/// What a statement takes and gives.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<&str>> for Value {
    fn from(value: Option<&str>) -> Self {
        Self::Text(value.map(str::to_owned))
    }
}

#[derive(Debug)]
pub struct Row(pub Vec<Value>);

impl Row {
    pub fn text(&self, column: usize) -> Result<&str> {
        self.maybe_text(column)?.ok_or_else(|| Self::odd(column))
    }

    pub fn maybe_text(&self, column: usize) -> Result<Option<&str>> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(text.as_deref()),
            Some(Value::Int(None)) => Ok(None),
            _ => Err(Self::odd(column)),
        }
    }

    pub fn int(&self, column: usize) -> Result<i64> {
        self.maybe_int(column)?.ok_or_else(|| Self::odd(column))
    }

    pub fn maybe_int(&self, column: usize) -> Result<Option<i64>> {
        match self.0.get(column) {
            Some(Value::Int(int)) => Ok(*int),
            Some(Value::Text(None)) => Ok(None),
            _ => Err(Self::odd(column)),
        }
    }

    /// A column of JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: usize) -> Result<T> {
        serde_json::from_str(self.text(column)?)
            .map_err(|e| Error::Store(format!("a row can't be understood ({e}); was it written by another version or by hand?")))
    }

    fn odd(column: usize) -> Error {
        Error::Store(format!("column {column} of a row is not what the tables promise; were they changed by hand?"))
    }
}

/// Binds the values to a statement of either database.
macro_rules! bind {
    ($statement:expr, $values:expr) => {{
        let mut query = sqlx::query($statement);
        for value in $values {
            query = match value {
                $crate::store::driver::Value::Int(value) => query.bind(value),
                $crate::store::driver::Value::Text(value) => query.bind(value),
            };
        }
        query
    }};
}
/// Reads the rows of either database.
macro_rules! unpack {
    ($rows:expr) => {
        $rows
            .iter()
            .map(|row| {
                (0..row.columns().len())
                    .map(|column| {
                        let integer = matches!(row.try_get_raw(column)?.type_info().name(), "INTEGER" | "INT8");
                        Ok(if integer {
                            $crate::store::driver::Value::Int(row.try_get(column)?)
                        } else {
                            $crate::store::driver::Value::Text(row.try_get(column)?)
                        })
                    })
                    .collect::<Result<Vec<_>, sqlx::Error>>()
                    .map($crate::store::driver::Row)
            })
            .collect::<Result<Vec<_>, sqlx::Error>>()
    };
}
pub(super) use {bind, unpack};
