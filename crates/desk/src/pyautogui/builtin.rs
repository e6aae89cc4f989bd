//! Functions that make no input: Python's own and those of the modules that the subset knows.

use super::evaluate::Machine;
use super::gestures::Arguments;
use super::operate::{self, binary, check_length, finite, order, truth};
use super::player::FARTHEST;
use super::stop::{Outcome, Stop, refuse};
use super::syntax::BinaryOperator;
use super::text::{Text, text_of};
use super::value::{Builtin, Items, Unknown, Value, range_length};
use super::world::World;
use std::cmp::Ordering;

/// Variables that every program of a desk has, whose values are looked up when it is run.
const VARIABLES: &[&str] = &["HOME", "DISPLAY"];
/// How long such a value may be. Checked before a program starts.
pub(super) const LONGEST_VARIABLE: usize = 4096;

impl<W: World> Machine<W> {
    pub(super) fn call_builtin(&mut self, function: Builtin, arguments: &Arguments) -> Outcome<Value> {
        let positional = &arguments.positional[..];
        if function == Builtin::Print {
            return self.print(arguments);
        }
        if function == Builtin::Position {
            return self.position(arguments);
        }
        if function == Builtin::Enumerate {
            return enumerate(arguments);
        }
        if !arguments.keywords.is_empty() {
            return refuse("keywords of a builtin");
        }
        match (function, positional) {
            (Builtin::Len, [value]) => length(value),
            (Builtin::Range, bounds) => range(bounds),
            (Builtin::Int, [value]) => whole(value),
            (Builtin::Float, [value]) => float(value),
            (Builtin::Str, []) => Ok(Value::text("")),
            (Builtin::Str, [value]) => Ok(text_of(value)?.into_value()),
            (Builtin::Repr, [value]) => {
                let mut text = Text::default();
                text.push_repr_of(value)?;
                Ok(text.into_value())
            }
            (Builtin::Bool, [value]) => Ok(Value::Bool(truth(value)?)),
            (Builtin::Abs, [value]) => absolute(value),
            (Builtin::Min, values) => extreme(values, Ordering::Less),
            (Builtin::Max, values) => extreme(values, Ordering::Greater),
            (Builtin::Sum, [values]) => sum(values),
            (Builtin::Round, [value]) => round(value),
            (Builtin::Round, [value, Value::Int(digits)]) => round_to(value, *digits),
            (Builtin::Chr, [Value::Int(n)]) => match u32::try_from(*n).ok().and_then(char::from_u32) {
                Some(c) => Ok(Value::text(c.to_string())),
                None => refuse("a number that is no character"),
            },
            (Builtin::Ord, [Value::Str(text)]) => {
                let mut characters = text.chars();
                match (characters.next(), characters.next()) {
                    (Some(c), None) => Ok(Value::Int(i64::from(u32::from(c)))),
                    _ => refuse("a text that is not one character"),
                }
            }
            (Builtin::List, []) => Value::list([]),
            (Builtin::Tuple, []) => Value::tuple([]),
            (Builtin::List, [value]) => Value::list(iterate(value)?),
            (Builtin::Tuple, [value]) => Value::tuple(iterate(value)?),
            (Builtin::Zip, values) => zip(values),
            (Builtin::Reversed, [value]) if !matches!(value, Value::Once(_)) => {
                check_items(value)?;
                let mut items: Vec<Value> = iterate(value)?.collect();
                items.reverse();
                Ok(Value::Once(Items::new(items)?))
            }
            (Builtin::Exit, values) => exit(values),
            (Builtin::Sleep, [time]) => {
                self.player.sleep(time)?;
                Ok(Value::None)
            }
            (Builtin::Size, []) => self.player.size(),
            (Builtin::PlatformSystem, []) => Ok(Value::text("Linux")),
            (Builtin::GetVariable, [Value::Str(name)] | [Value::Str(name), _]) => self.variable(name),
            (Builtin::JoinPath, parts) => join_path(parts),
            (Builtin::ExpandUser, [Value::Str(path)]) => self.expand_user(path),
            (Builtin::Floor | Builtin::Ceil, [value]) => floor_or_ceil(value, function == Builtin::Floor),
            (Builtin::SquareRoot, [value]) => match number(value)? {
                n if n >= 0.0 => finite(n.sqrt()),
                _ => refuse("the square root of less than nothing"),
            },
            (Builtin::Sine, [value]) => finite(number(value)?.sin()),
            (Builtin::Cosine, [value]) => finite(number(value)?.cos()),
            _ => refuse("arguments that do not fit the function"),
        }
    }

    fn print(&mut self, arguments: &Arguments) -> Outcome<Value> {
        let (mut separator, mut end, mut to_stderr) = (" ".to_owned(), "\n".to_owned(), false);
        for (name, value) in &arguments.keywords {
            match (name.as_ref(), value) {
                ("sep", Value::Str(text)) => separator = text.to_string(),
                ("end", Value::Str(text)) => end = text.to_string(),
                ("file", Value::Stream(stderr)) => to_stderr = *stderr,
                ("sep" | "end" | "file", Value::None) => {}
                ("flush", Value::Bool(_)) => {}
                _ => return refuse("a keyword of print"),
            }
        }
        let mut text = Text::default();
        for (i, value) in arguments.positional.iter().enumerate() {
            if i > 0 {
                text.push(&separator);
            }
            text.push_str_of(value)?;
            check_length(text.text.len())?;
        }
        text.push(&end);
        self.write(text, to_stderr)?;
        Ok(Value::None)
    }

    fn position(&mut self, arguments: &Arguments) -> Outcome<Value> {
        let known = |name: &str| matches!(name, "x" | "y");
        if arguments.positional.len() > 2
            || (!arguments.positional.is_empty() && !arguments.keywords.is_empty())
            || !arguments.keywords.iter().all(|(name, _)| known(name))
        {
            return refuse("arguments that do not fit the function");
        }
        let x = arguments.positional.first().or_else(|| arguments.keyword("x"));
        let y = arguments.positional.get(1).or_else(|| arguments.keyword("y"));
        self.player.position(x, y)
    }

    /// `os.getenv(name)`, of a variable that is always there.
    pub(super) fn variable(&mut self, name: &str) -> Outcome<Value> {
        if !VARIABLES.contains(&name) {
            return refuse("a variable that may be missing");
        }
        self.read_variables = true;
        if self.player.world.rehearsing() {
            return Ok(Value::Unknown(Unknown::Str(LONGEST_VARIABLE)));
        }
        self.player.world.variable(name).map_or_else(|| refuse("a variable that is missing"), |value| Ok(Value::text(value)))
    }

    fn expand_user(&mut self, path: &str) -> Outcome<Value> {
        let rest = match path.strip_prefix('~') {
            None => return Ok(Value::text(path)),
            Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
            Some(_) => return refuse("the home of another user"),
        };
        match self.variable("HOME")? {
            Value::Str(home) => {
                let path = format!("{}{rest}", home.trim_end_matches('/'));
                Ok(Value::text(if path.is_empty() { "/".to_owned() } else { path }))
            }
            Value::Unknown(Unknown::Str(length)) => Ok(Value::Unknown(Unknown::Str(length + rest.len()))),
            _ => refuse("a home that is no text"),
        }
    }
}

/// The variables that must be there, and of sane length, before a program may start.
pub(super) fn variables() -> &'static [&'static str] {
    VARIABLES
}

/// Everything that `for x in value` goes through.
pub(super) fn iterate(value: &Value) -> Outcome<Box<dyn Iterator<Item = Value>>> {
    Ok(match value.clone() {
        Value::Tuple(items) | Value::List(items) | Value::Pair(_, items) | Value::Once(items) => {
            Box::new((0..items.len()).filter_map(move |i| items.get(i).cloned()))
        }
        Value::Range { start, stop, step } => {
            Box::new((0..range_length(start, stop, step)).map(move |i| Value::Int(start + i * step)))
        }
        Value::Str(text) => {
            let characters: Vec<char> = text.chars().collect();
            Box::new(characters.into_iter().map(|c| Value::text(c.to_string())))
        }
        _ => return refuse("something that can't be gone through"),
    })
}

fn check_items(value: &Value) -> Outcome<()> {
    match value {
        Value::Range { start, stop, step } => {
            check_length(usize::try_from(range_length(*start, *stop, *step)).unwrap_or(usize::MAX))
        }
        _ => Ok(()),
    }
}

fn length(value: &Value) -> Outcome<Value> {
    let length = match value {
        Value::Str(text) => text.chars().count(),
        Value::Tuple(items) | Value::List(items) | Value::Pair(_, items) => items.len(),
        Value::Range { start, stop, step } => return Ok(Value::Int(range_length(*start, *stop, *step))),
        Value::Unknown(Unknown::Str(length)) => return Ok(Value::Unknown(Unknown::Int(*length as f64))),
        _ => return refuse("something that has no length"),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn range(bounds: &[Value]) -> Outcome<Value> {
    /// Bounds beyond this would make sums of them overflow.
    const MOST: i64 = 1 << 40;
    let bounds: Vec<i64> = bounds
        .iter()
        .map(|bound| match bound {
            Value::Int(n) if n.abs() <= MOST => Ok(*n),
            Value::Bool(b) => Ok(i64::from(*b)),
            _ => refuse("a bound that is no whole number"),
        })
        .collect::<Outcome<_>>()?;
    match bounds[..] {
        [stop] => Ok(Value::Range { start: 0, stop, step: 1 }),
        [start, stop] => Ok(Value::Range { start, stop, step: 1 }),
        [start, stop, step] if step != 0 => Ok(Value::Range { start, stop, step }),
        _ => refuse("a range without bounds"),
    }
}

/// `int(value)`
fn whole(value: &Value) -> Outcome<Value> {
    match value {
        Value::Int(n) => Ok(Value::Int(*n)),
        Value::Bool(b) => Ok(Value::Int(i64::from(*b))),
        Value::Float(n) if n.abs() < 9e18 => Ok(Value::Int(n.trunc() as i64)),
        Value::Unknown(Unknown::Int(bound) | Unknown::Float(bound)) => Ok(Value::Unknown(Unknown::Int(*bound))),
        Value::Str(text) if is_plain_number(text, false) => {
            text.parse().map_or_else(|_| refuse("a whole number beyond 64 bits"), |n| Ok(Value::Int(n)))
        }
        _ => refuse("something that is no whole number"),
    }
}

fn float(value: &Value) -> Outcome<Value> {
    match value {
        Value::Float(n) => Ok(Value::Float(*n)),
        Value::Int(n) => Ok(Value::Float(*n as f64)),
        Value::Bool(b) => Ok(Value::Float(f64::from(u8::from(*b)))),
        Value::Unknown(Unknown::Int(bound) | Unknown::Float(bound)) => Ok(Value::Unknown(Unknown::Float(*bound))),
        Value::Str(text) if is_plain_number(text, true) => {
            text.parse().map_or_else(|_| refuse("something that is no number"), finite)
        }
        _ => refuse("something that is no number"),
    }
}

/// Digits with a sign and perhaps a point: all that we read without asking Python.
fn is_plain_number(text: &str, point: bool) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let parts: Vec<&str> = digits.split('.').collect();
    parts.len() <= if point { 2 } else { 1 }
        && parts.iter().all(|part| !part.is_empty() && part.len() < 19 && part.bytes().all(|b| b.is_ascii_digit()))
}

fn number(value: &Value) -> Outcome<f64> {
    match float(value)? {
        Value::Float(n) if !matches!(value, Value::Str(_)) => Ok(n),
        _ => refuse("something that is no known number"),
    }
}

fn absolute(value: &Value) -> Outcome<Value> {
    match value {
        Value::Float(n) => Ok(Value::Float(n.abs())),
        Value::Unknown(Unknown::Int(_) | Unknown::Float(_)) => Ok(value.clone()),
        value => match whole(value)? {
            Value::Int(n) if !matches!(value, Value::Str(_)) && n != i64::MIN => Ok(Value::Int(n.abs())),
            _ => refuse("something that has no magnitude"),
        },
    }
}

/// `min` and `max`: the first of the values that no other one beats.
fn extreme(values: &[Value], wanted: Ordering) -> Outcome<Value> {
    let values: Vec<Value> = match values {
        [one] => {
            check_items(one)?;
            iterate(one)?.collect()
        }
        many => many.to_vec(),
    };
    if values.iter().any(|value| matches!(value, Value::Unknown(_))) {
        return extreme_unknown(&values);
    }
    let mut values = values.into_iter();
    let Some(mut best) = values.next() else { return refuse("the extreme of nothing") };
    for value in values {
        if order(&value, &best)? == wanted {
            best = value;
        }
    }
    Ok(best)
}

/// The type is known only if all have the same.
fn extreme_unknown(values: &[Value]) -> Outcome<Value> {
    let bound = |value: &Value| match value {
        Value::Int(n) => Some((true, n.unsigned_abs() as f64)),
        Value::Unknown(Unknown::Int(bound)) => Some((true, *bound)),
        Value::Float(n) => Some((false, n.abs())),
        Value::Unknown(Unknown::Float(bound)) => Some((false, *bound)),
        _ => None,
    };
    let bounds: Option<Vec<(bool, f64)>> = values.iter().map(bound).collect();
    let bounds = bounds.unwrap_or_default();
    let Some((is_int, _)) = bounds.first().copied() else { return refuse("the extreme of something unknown") };
    if bounds.iter().any(|(other, _)| *other != is_int) {
        return refuse("an extreme whose type is unknown");
    }
    let most = bounds.iter().map(|(_, bound)| *bound).fold(0.0, f64::max);
    Ok(Value::Unknown(if is_int { Unknown::Int(most) } else { Unknown::Float(most) }))
}

/// Floats are summed differently since Python 3.12.
fn sum(values: &Value) -> Outcome<Value> {
    check_items(values)?;
    let mut total = Value::Int(0);
    for value in iterate(values)? {
        if !matches!(value, Value::Int(_) | Value::Bool(_) | Value::Unknown(Unknown::Int(_))) {
            return refuse("a sum of something else than whole numbers");
        }
        total = binary(BinaryOperator::Add, &total, &value)?;
    }
    Ok(total)
}

fn round(value: &Value) -> Outcome<Value> {
    match value {
        Value::Float(n) if n.abs() < 1e15 => Ok(Value::Int(n.round_ties_even() as i64)),
        Value::Unknown(Unknown::Int(bound) | Unknown::Float(bound)) => Ok(Value::Unknown(Unknown::Int(bound + 1.0))),
        Value::Int(_) | Value::Bool(_) => whole(value),
        _ => refuse("something that can't be rounded"),
    }
}

fn round_to(value: &Value, digits: i64) -> Outcome<Value> {
    match (value, usize::try_from(digits)) {
        (Value::Int(n), Ok(_)) => Ok(Value::Int(*n)),
        (Value::Float(n), Ok(digits)) if digits <= 15 && n.abs() < 1e15 => {
            format!("{n:.digits$}").parse().map_or_else(|_| refuse("something that can't be rounded"), finite)
        }
        (Value::Unknown(Unknown::Float(bound)), Ok(digits)) if digits <= 15 => Ok(Value::Unknown(Unknown::Float(bound + 1.0))),
        _ => refuse("something that can't be rounded"),
    }
}

fn floor_or_ceil(value: &Value, floor: bool) -> Outcome<Value> {
    match value {
        Value::Float(n) if n.abs() < 1e15 => Ok(Value::Int(if floor { n.floor() } else { n.ceil() } as i64)),
        Value::Unknown(Unknown::Int(bound) | Unknown::Float(bound)) => Ok(Value::Unknown(Unknown::Int(bound + 1.0))),
        Value::Int(_) | Value::Bool(_) => whole(value),
        _ => refuse("something that can't be rounded"),
    }
}

fn enumerate(arguments: &Arguments) -> Outcome<Value> {
    let (values, start) = match (&arguments.positional[..], &arguments.keywords[..]) {
        ([values], []) => (values, 0),
        ([values, Value::Int(start)], []) => (values, *start),
        ([values], [(name, Value::Int(start))]) if name.as_ref() == "start" => (values, *start),
        _ => return refuse("arguments that do not fit the function"),
    };
    if matches!(values, Value::Once(_)) || start.abs() > FARTHEST {
        return refuse("a generator that is used later");
    }
    check_items(values)?;
    let pairs: Vec<Value> =
        iterate(values)?.zip(start..).map(|(value, i)| Value::tuple([Value::Int(i), value])).collect::<Outcome<_>>()?;
    Ok(Value::Once(Items::new(pairs)?))
}

fn zip(values: &[Value]) -> Outcome<Value> {
    let mut columns = Vec::new();
    for value in values {
        if matches!(value, Value::Once(_)) {
            return refuse("a generator that is used later");
        }
        check_items(value)?;
        columns.push(iterate(value)?);
    }
    let mut rows = Vec::new();
    while !columns.is_empty() {
        let row: Option<Vec<Value>> = columns.iter_mut().map(Iterator::next).collect();
        match row {
            Some(row) => rows.push(Value::tuple(row)?),
            None => break,
        }
        check_length(rows.len())?;
    }
    Ok(Value::Once(Items::new(rows)?))
}

fn exit(values: &[Value]) -> Outcome<Value> {
    match values {
        [] | [Value::None] => Err(Stop::Exit(0, String::new())),
        // A process has eight bits for it.
        [Value::Int(n)] => Err(Stop::Exit((n & 0xff) as i32, String::new())),
        [Value::Bool(b)] => Err(Stop::Exit(i32::from(*b), String::new())),
        [Value::Str(text)] => Err(Stop::Exit(1, format!("{text}\n"))),
        _ => refuse("an exit with something unusual"),
    }
}

/// `os.path.join(…)`
fn join_path(parts: &[Value]) -> Outcome<Value> {
    let Some((first, rest)) = parts.split_first() else { return refuse("a path of nothing") };
    let mut unknown = None;
    let mut path = match first {
        Value::Str(text) => text.to_string(),
        Value::Unknown(Unknown::Str(length)) => {
            unknown = Some(*length);
            String::new()
        }
        _ => return refuse("a path that is no text"),
    };
    for part in rest {
        let part = match part {
            Value::Str(text) => text,
            Value::Unknown(Unknown::Str(length)) => {
                unknown = Some(unknown.unwrap_or(0) + length + 1);
                continue;
            }
            _ => return refuse("a path that is no text"),
        };
        if unknown.is_some() {
            unknown = unknown.map(|length| length + part.len() + 1);
        } else if part.starts_with('/') {
            path = part.to_string();
        } else if path.is_empty() || path.ends_with('/') {
            path.push_str(part);
        } else {
            path.push('/');
            path.push_str(part);
        }
    }
    let length = path.len() + unknown.unwrap_or(0);
    operate::check_length(length)?;
    Ok(if unknown.is_some() { Value::Unknown(Unknown::Str(length)) } else { Value::text(path) })
}
