//! Operators: arithmetic, comparison, truth, indexing, with Python's results or none at all.
//!
//! Whole numbers are 64 bits wide and floats finite. What would leave these bounds is refused.

use super::easing::power;
use super::stop::{Outcome, raise, refuse};
use super::syntax::{BinaryOperator, Comparison, UnaryOperator};
use super::value::{Items, MOST_ITEMS, Unknown, Value, range_length};
use std::cmp::Ordering;
use std::sync::Arc;

/// Up to here whole numbers and floats are the same thing.
const EXACT: f64 = 9_007_199_254_740_992.0;

fn is_exact(n: i64) -> bool {
    n.unsigned_abs() <= 1 << 53
}

/// A number, or what is known of one.
#[derive(Debug, Clone, Copy)]
enum Number {
    Int(i64),
    Float(f64),
    UnknownInt(f64),
    UnknownFloat(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(b) => Self::Int(i64::from(*b)),
            Value::Int(n) => Self::Int(*n),
            Value::Float(n) => Self::Float(*n),
            Value::Unknown(Unknown::Int(bound)) => Self::UnknownInt(*bound),
            Value::Unknown(Unknown::Float(bound)) => Self::UnknownFloat(*bound),
            Value::Unknown(Unknown::Bool) => Self::UnknownInt(1.0),
            _ => return None,
        })
    }

    fn bound(self) -> f64 {
        match self {
            Self::Int(n) => n.unsigned_abs() as f64,
            Self::Float(n) => n.abs(),
            Self::UnknownInt(bound) | Self::UnknownFloat(bound) => bound,
        }
    }

    fn is_int(self) -> bool {
        matches!(self, Self::Int(_) | Self::UnknownInt(_))
    }
}

pub(super) fn binary(operator: BinaryOperator, left: &Value, right: &Value) -> Outcome<Value> {
    if let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) {
        return match (a, b) {
            (Number::Int(a), Number::Int(b)) => {
                let both_bool = matches!((left, right), (Value::Bool(_), Value::Bool(_)));
                whole(operator, a, b, both_bool)
            }
            (Number::Int(a), Number::Float(b)) => floating(operator, a as f64, b),
            (Number::Float(a), Number::Int(b)) => floating(operator, a, b as f64),
            (Number::Float(a), Number::Float(b)) => floating(operator, a, b),
            (a, b) => unknown(operator, a, b),
        };
    }
    match (operator, left, right) {
        (BinaryOperator::Add, Value::Str(a), Value::Str(b)) => {
            check_length(a.len() + b.len())?;
            Ok(Value::text(format!("{a}{b}")))
        }
        (BinaryOperator::Add, a, b) if string_length(a).is_some() && string_length(b).is_some() => {
            let length = string_length(a).unwrap_or(0) + string_length(b).unwrap_or(0);
            check_length(length)?;
            Ok(Value::Unknown(Unknown::Str(length)))
        }
        (BinaryOperator::Add, Value::List(a), Value::List(b)) => Ok(Value::List(joined(a, b)?)),
        (BinaryOperator::Add, Value::Tuple(a) | Value::Pair(_, a), Value::Tuple(b) | Value::Pair(_, b)) => {
            Ok(Value::Tuple(joined(a, b)?))
        }
        (BinaryOperator::Multiply, sequence, count) | (BinaryOperator::Multiply, count, sequence)
            if matches!(count, Value::Int(_) | Value::Bool(_)) =>
        {
            repeated(sequence, count)
        }
        _ => refuse("operands that do not fit"),
    }
}

fn whole(operator: BinaryOperator, a: i64, b: i64, both_bool: bool) -> Outcome<Value> {
    let int = |result: Option<i64>| result.map_or_else(|| refuse("a whole number beyond 64 bits"), |n| Ok(Value::Int(n)));
    match operator {
        BinaryOperator::Add => int(a.checked_add(b)),
        BinaryOperator::Subtract => int(a.checked_sub(b)),
        BinaryOperator::Multiply => int(a.checked_mul(b)),
        BinaryOperator::Divide if b == 0 => raise("ZeroDivisionError", "division by zero"),
        BinaryOperator::Divide => {
            if !is_exact(a) || !is_exact(b) {
                return refuse("a quotient of numbers that floats can't hold");
            }
            finite(a as f64 / b as f64)
        }
        BinaryOperator::FloorDivide | BinaryOperator::Modulo if b == 0 => refuse("words that changed between versions"),
        BinaryOperator::FloorDivide => {
            let quotient = a.checked_div(b);
            int(quotient.map(|q| if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }))
        }
        BinaryOperator::Modulo => {
            let rest = a.checked_rem(b);
            int(rest.map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }))
        }
        BinaryOperator::Power if b >= 0 => int(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        BinaryOperator::Power => floating(operator, a as f64, b as f64),
        BinaryOperator::And if both_bool => Ok(Value::Bool(a & b == 1)),
        BinaryOperator::Or if both_bool => Ok(Value::Bool(a | b == 1)),
        BinaryOperator::Xor if both_bool => Ok(Value::Bool(a ^ b == 1)),
        BinaryOperator::And => Ok(Value::Int(a & b)),
        BinaryOperator::Or => Ok(Value::Int(a | b)),
        BinaryOperator::Xor => Ok(Value::Int(a ^ b)),
    }
}

fn floating(operator: BinaryOperator, a: f64, b: f64) -> Outcome<Value> {
    match operator {
        BinaryOperator::Add => finite(a + b),
        BinaryOperator::Subtract => finite(a - b),
        BinaryOperator::Multiply => finite(a * b),
        BinaryOperator::Divide | BinaryOperator::FloorDivide | BinaryOperator::Modulo if b == 0.0 => {
            refuse("words that changed between versions")
        }
        BinaryOperator::Divide => finite(a / b),
        BinaryOperator::FloorDivide => finite(floor_and_rest(a, b).0),
        BinaryOperator::Modulo => finite(floor_and_rest(a, b).1),
        BinaryOperator::Power if a == 0.0 && b < 0.0 => refuse("words that changed between versions"),
        BinaryOperator::Power if a < 0.0 && b.fract() != 0.0 => refuse("a complex number"),
        BinaryOperator::Power => finite(power(a, b)),
        BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor => refuse("bits of a float"),
    }
}

/// `divmod(a, b)`, the way CPython rounds it.
fn floor_and_rest(a: f64, b: f64) -> (f64, f64) {
    let mut rest = a % b;
    let mut quotient = (a - rest) / b;
    if rest == 0.0 {
        rest = 0.0_f64.copysign(b);
    } else if (b < 0.0) != (rest < 0.0) {
        rest += b;
        quotient -= 1.0;
    }
    if quotient == 0.0 {
        return (0.0_f64.copysign(a / b), rest);
    }
    let floor = quotient.floor();
    (if quotient - floor > 0.5 { floor + 1.0 } else { floor }, rest)
}

/// What is known of a result when an operand is not known.
fn unknown(operator: BinaryOperator, a: Number, b: Number) -> Outcome<Value> {
    let both_int = a.is_int() && b.is_int();
    let result = |int: bool, bound: f64| {
        if bound > EXACT {
            return refuse("an unknown number that may get too large");
        }
        Ok(Value::Unknown(if int { Unknown::Int(bound) } else { Unknown::Float(bound) }))
    };
    match (operator, b) {
        (BinaryOperator::Add | BinaryOperator::Subtract, _) => result(both_int, a.bound() + b.bound()),
        (BinaryOperator::Multiply, _) => result(both_int, a.bound() * b.bound()),
        (BinaryOperator::Divide, Number::Int(1..) | Number::Int(..=-1)) => result(false, a.bound() / b.bound()),
        (BinaryOperator::Divide, Number::Float(n)) if n.abs() > 1e-6 => result(false, a.bound() / n.abs()),
        (BinaryOperator::FloorDivide, Number::Int(1..)) if both_int => result(true, a.bound() + 1.0),
        (BinaryOperator::Modulo, Number::Int(1..)) if both_int => result(true, b.bound()),
        _ => refuse("an operator on something unknown"),
    }
}

pub(super) fn unary(operator: UnaryOperator, value: &Value) -> Outcome<Value> {
    if operator == UnaryOperator::Not {
        return Ok(Value::Bool(!truth(value)?));
    }
    match (operator, Number::of(value)) {
        (UnaryOperator::Minus, Some(Number::Int(n))) => {
            n.checked_neg().map_or_else(|| refuse("a whole number beyond 64 bits"), |n| Ok(Value::Int(n)))
        }
        (UnaryOperator::Plus, Some(Number::Int(n))) => Ok(Value::Int(n)),
        (UnaryOperator::Invert, Some(Number::Int(n))) if !matches!(value, Value::Bool(_)) => Ok(Value::Int(!n)),
        (UnaryOperator::Minus, Some(Number::Float(n))) => Ok(Value::Float(-n)),
        (UnaryOperator::Plus, Some(Number::Float(n))) => Ok(Value::Float(n)),
        (UnaryOperator::Minus | UnaryOperator::Plus, Some(Number::UnknownInt(bound))) => Ok(Value::Unknown(Unknown::Int(bound))),
        (UnaryOperator::Minus | UnaryOperator::Plus, Some(Number::UnknownFloat(bound))) => {
            Ok(Value::Unknown(Unknown::Float(bound)))
        }
        _ => refuse("an operand that does not fit"),
    }
}

/// `bool(value)`
pub(super) fn truth(value: &Value) -> Outcome<bool> {
    Ok(match value {
        Value::None => false,
        Value::Bool(b) => *b,
        Value::Int(n) => *n != 0,
        Value::Float(n) => *n != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::Tuple(items) | Value::List(items) | Value::Pair(_, items) => !items.is_empty(),
        Value::Range { start, stop, step } => range_length(*start, *stop, *step) > 0,
        Value::Module(_) | Value::Function(_) | Value::Stream(_) => true,
        Value::Once(_) | Value::Unknown(_) => return refuse("a decision that depends on the world"),
    })
}

pub(super) fn compare(comparison: Comparison, left: &Value, right: &Value) -> Outcome<Value> {
    if has_unknown(left) || has_unknown(right) {
        return match (comparison, Number::of(left), Number::of(right)) {
            (Comparison::In | Comparison::NotIn | Comparison::Is | Comparison::IsNot, _, _) => refuse("unknown"),
            (_, Some(_), Some(_)) => Ok(Value::Unknown(Unknown::Bool)),
            _ => refuse("a comparison with something unknown"),
        };
    }
    Ok(Value::Bool(match comparison {
        Comparison::Equal => equal(left, right)?,
        Comparison::NotEqual => !equal(left, right)?,
        Comparison::Less => order(left, right)? == Ordering::Less,
        Comparison::LessOrEqual => order(left, right)? != Ordering::Greater,
        Comparison::Greater => order(left, right)? == Ordering::Greater,
        Comparison::GreaterOrEqual => order(left, right)? != Ordering::Less,
        Comparison::In => contains(right, left)?,
        Comparison::NotIn => !contains(right, left)?,
        Comparison::Is => identical(left, right),
        Comparison::IsNot => !identical(left, right),
    }))
}

fn identical(left: &Value, singleton: &Value) -> bool {
    match (left, singleton) {
        (Value::None, Value::None) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        _ => false,
    }
}

fn equal(left: &Value, right: &Value) -> Outcome<bool> {
    if let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) {
        return Ok(order_numbers(a, b)? == Ordering::Equal);
    }
    match (left, right) {
        (Value::Str(a), Value::Str(b)) => Ok(a == b),
        (Value::None, Value::None) => Ok(true),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a) | Value::Pair(_, a), Value::Tuple(b) | Value::Pair(_, b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Range { .. }, Value::Range { .. }) => refuse("the equality of ranges"),
        (Value::Module(_) | Value::Function(_) | Value::Stream(_) | Value::Once(_), _)
        | (_, Value::Module(_) | Value::Function(_) | Value::Stream(_) | Value::Once(_)) => refuse("the equality of functions"),
        _ => Ok(false),
    }
}

/// How `left` and `right` compare, where Python has an order for them.
pub(super) fn order(left: &Value, right: &Value) -> Outcome<Ordering> {
    if let (Some(a), Some(b)) = (Number::of(left), Number::of(right)) {
        return order_numbers(a, b);
    }
    match (left, right) {
        // The order of code points is the order of the bytes of UTF-8.
        (Value::Str(a), Value::Str(b)) => Ok(a.as_ref().cmp(b.as_ref())),
        (Value::List(a), Value::List(b)) | (Value::Tuple(a) | Value::Pair(_, a), Value::Tuple(b) | Value::Pair(_, b)) => {
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b)? {
                    return order(a, b);
                }
            }
            Ok(a.len().cmp(&b.len()))
        }
        _ => refuse("things that have no order"),
    }
}

fn order_numbers(a: Number, b: Number) -> Outcome<Ordering> {
    let ordering = match (a, b) {
        (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
        (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
        (Number::Int(n), Number::Float(f)) if is_exact(n) => (n as f64).partial_cmp(&f),
        (Number::Float(f), Number::Int(n)) if is_exact(n) => f.partial_cmp(&(n as f64)),
        _ => None,
    };
    ordering.map_or_else(|| refuse("a comparison that floats can't make"), Ok)
}

fn contains(container: &Value, item: &Value) -> Outcome<bool> {
    match (container, item) {
        (Value::Str(text), Value::Str(part)) => Ok(text.contains(part.as_ref())),
        (Value::Tuple(items) | Value::List(items) | Value::Pair(_, items), item) => {
            for each in items.iter() {
                if equal(each, item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (Value::Range { start, stop, step }, Value::Int(n)) => {
            let (start, stop, step, n) = (i128::from(*start), i128::from(*stop), i128::from(*step), i128::from(*n));
            let inside = if step > 0 { start <= n && n < stop } else { stop < n && n <= start };
            Ok(inside && (n - start) % step == 0)
        }
        _ => refuse("a search in something that is no container"),
    }
}

/// `value[index]`
pub(super) fn index(value: &Value, index: &Value) -> Outcome<Value> {
    let index = match index {
        Value::Int(n) => *n,
        Value::Bool(b) => i64::from(*b),
        _ => return refuse("an index that is no number"),
    };
    let place = |length: usize, kind: &str| {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let place = if index < 0 { index.saturating_add(length) } else { index };
        if (0..length).contains(&place) {
            Ok(usize::try_from(place).unwrap_or(usize::MAX))
        } else {
            raise("IndexError", format!("{kind} index out of range"))
        }
    };
    let found = match value {
        Value::Str(text) => text.chars().nth(place(text.chars().count(), "string")?).map(|c| Value::text(c.to_string())),
        Value::List(items) => items.get(place(items.len(), "list")?).cloned(),
        Value::Tuple(items) | Value::Pair(_, items) => items.get(place(items.len(), "tuple")?).cloned(),
        _ => None,
    };
    found.map_or_else(|| refuse("something that has no items"), Ok)
}

/// `value[start:stop:step]`
pub(super) fn slice(value: &Value, bounds: [Option<i64>; 3]) -> Outcome<Value> {
    let places = |length: usize| -> Outcome<Vec<usize>> {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let step = bounds[2].unwrap_or(1);
        if step == 0 {
            return refuse("a slice with step zero");
        }
        let (low, high) = if step > 0 { (0, length) } else { (-1, length - 1) };
        let clamp = |bound: Option<i64>, default: i64| match bound {
            None => default,
            Some(n) if n < 0 => n.saturating_add(length).max(low),
            Some(n) => n.min(high),
        };
        let start = clamp(bounds[0], if step > 0 { low } else { high });
        let stop = clamp(bounds[1], if step > 0 { high } else { low });
        let count = range_length(start, stop, step);
        Ok((0..count).filter_map(|i| usize::try_from(start + i * step).ok()).collect())
    };
    match value {
        Value::Str(text) => {
            let characters: Vec<char> = text.chars().collect();
            let places = places(characters.len())?;
            Ok(Value::text(places.iter().filter_map(|i| characters.get(*i)).collect::<String>()))
        }
        Value::Tuple(items) | Value::List(items) | Value::Pair(_, items) => {
            let items = places(items.len())?.into_iter().filter_map(|i| items.get(i).cloned());
            if matches!(value, Value::List(_)) { Value::list(items) } else { Value::tuple(items) }
        }
        _ => refuse("a slice of something that has no items"),
    }
}

pub(super) fn finite(n: f64) -> Outcome<Value> {
    if n.is_finite() { Ok(Value::Float(n)) } else { refuse("a float that is not finite") }
}

pub(super) fn check_length(length: usize) -> Outcome<()> {
    if length > MOST_ITEMS { refuse("something that gets too long") } else { Ok(()) }
}

fn has_unknown(value: &Value) -> bool {
    match value {
        Value::Unknown(_) => true,
        value => value.items().is_some_and(|items| items.iter().any(has_unknown)),
    }
}

fn string_length(value: &Value) -> Option<usize> {
    match value {
        Value::Str(text) => Some(text.len()),
        Value::Unknown(Unknown::Str(length)) => Some(*length),
        _ => None,
    }
}

fn joined(a: &[Value], b: &[Value]) -> Outcome<Arc<Items>> {
    Items::new(a.iter().chain(b).cloned())
}

fn repeated(sequence: &Value, count: &Value) -> Outcome<Value> {
    let count = match count {
        Value::Int(n) => usize::try_from(*n).unwrap_or(0),
        Value::Bool(b) => usize::from(*b),
        _ => return refuse("operands that do not fit"),
    };
    let many = |items: &Items| {
        check_length(items.len().saturating_mul(count))?;
        Items::new(items.iter().cloned().cycle().take(items.len() * count))
    };
    match sequence {
        Value::Str(text) => {
            check_length(text.len().saturating_mul(count))?;
            Ok(Value::text(text.repeat(count)))
        }
        Value::List(items) => Ok(Value::List(many(items)?)),
        Value::Tuple(items) | Value::Pair(_, items) => Ok(Value::Tuple(many(items)?)),
        _ => refuse("operands that do not fit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_as_in_python() {
        for (a, b, quotient, rest) in [(7, 2, 3, 1), (-7, 2, -4, 1), (7, -2, -4, -1), (-7, -2, 3, -1), (6, 3, 2, 0)] {
            assert_eq!(whole(BinaryOperator::FloorDivide, a, b, false).unwrap(), Value::Int(quotient));
            assert_eq!(whole(BinaryOperator::Modulo, a, b, false).unwrap(), Value::Int(rest));
        }
        assert_eq!(floor_and_rest(-7.5, 2.0), (-4.0, 0.5));
        assert_eq!(floor_and_rest(1.0, -0.25), (-4.0, -0.0));
    }

    #[test]
    fn nothing_overflows_silently() {
        assert!(whole(BinaryOperator::Add, i64::MAX, 1, false).is_err());
        assert!(whole(BinaryOperator::FloorDivide, i64::MIN, -1, false).is_err());
        assert!(whole(BinaryOperator::Power, 10, 19, false).is_err());
        assert!(floating(BinaryOperator::Multiply, 1e308, 10.0).is_err());
        assert!(repeated(&Value::text("ab"), &Value::Int(i64::MAX)).is_err());
        assert!(unary(UnaryOperator::Minus, &Value::Int(i64::MIN)).is_err());
    }

    #[test]
    fn slices() {
        let text = Value::text("abcdef");
        for (bounds, expected) in [
            ([Some(1), Some(3), None], "bc"),
            ([None, None, Some(-1)], "fedcba"),
            ([Some(-2), None, None], "ef"),
            ([Some(10), Some(2), Some(-2)], "fd"),
            ([Some(4), Some(1), None], ""),
            ([Some(i64::MIN), Some(i64::MAX), Some(2)], "ace"),
        ] {
            assert_eq!(slice(&text, bounds).unwrap(), Value::text(expected));
        }
    }

    #[test]
    fn unknown_numbers_stay_within_their_bounds() {
        let x = Value::Unknown(Unknown::Int(100.0));
        assert_eq!(binary(BinaryOperator::Divide, &x, &Value::Int(2)).unwrap(), Value::Unknown(Unknown::Float(50.0)));
        assert_eq!(binary(BinaryOperator::Add, &x, &Value::Int(-5)).unwrap(), Value::Unknown(Unknown::Int(105.0)));
        assert!(binary(BinaryOperator::Divide, &Value::Int(1), &x).is_err());
        assert!(binary(BinaryOperator::Multiply, &x, &Value::Int(1 << 60)).is_err());
        assert!(truth(&x).is_err());
    }
}
