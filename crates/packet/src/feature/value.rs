//! A value of the configuration as features read it, whatever the file's format is.

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// Text in quotation marks.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// Keys and values, in the order of the file.
    Table(Vec<(String, Self)>),
    /// A value of another kind, as written: a fraction, a date.
    Other(String),
}

impl Value {
    /// The kind of value, and the value itself where it is short, for messages.
    pub fn describe(&self) -> String {
        match self {
            Self::Boolean(value) => format!("boolean `{value}`"),
            Self::Integer(value) => format!("integer `{value}`"),
            Self::Text(text) => format!("string {text:?}"),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
            Self::Other(text) => format!("`{text}`"),
        }
    }
}
