//! The shape of a program inside the subset: what `lower` makes of Python's grammar and what
//! `evaluate` runs. Names are numbered slots, so that a comprehension's own names stay its own.

use super::value::Value;
use std::sync::Arc;

/// A whole program.
#[derive(Debug, Clone)]
pub(super) struct Script {
    pub(super) body: Vec<Statement>,
    /// How many variables there are.
    pub(super) slots: usize,
    /// It imports pyautogui, and so can't even start without a display.
    pub(super) needs_display: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Statement {
    /// Counted from one, for tracebacks.
    pub(super) line: usize,
    pub(super) kind: StatementKind,
}

#[derive(Debug, Clone)]
pub(super) enum StatementKind {
    Expression(Expression),
    /// `a = b = value`
    Assign(Vec<Target>, Expression),
    /// `name += value`
    Augment(usize, BinaryOperator, Expression),
    /// `import`: names bound to modules, or to what is in them.
    Bind(Vec<(usize, Value)>),
    For {
        target: Target,
        items: Expression,
        body: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    While {
        condition: Expression,
        body: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    /// `if`, `elif`s, and the body of `else`.
    If(Vec<(Expression, Vec<Statement>)>, Vec<Statement>),
    Break,
    Continue,
    Pass,
}

#[derive(Debug, Clone)]
pub(super) enum Target {
    Name(usize),
    Many(Vec<Target>),
    /// `pyautogui.PAUSE = …`
    Attribute(Expression, Arc<str>),
}

#[derive(Debug, Clone)]
pub(super) enum Expression {
    Constant(Value),
    /// A variable, and the builtin of that name where there is one.
    Name(usize, Option<Value>),
    Tuple(Vec<Argument>),
    List(Vec<Argument>),
    /// The text between the braces, and the braces.
    Format(Vec<FormatPart>),
    Binary(BinaryOperator, Box<(Expression, Expression)>),
    Unary(UnaryOperator, Box<Expression>),
    /// `and`, if the flag is set, or `or`.
    Logic(bool, Vec<Expression>),
    Compare(Box<Expression>, Vec<(Comparison, Expression)>),
    /// condition, then, otherwise
    Choice(Box<(Expression, Expression, Expression)>),
    Attribute(Box<Expression>, Arc<str>),
    Index(Box<(Expression, Expression)>),
    Slice(Box<Expression>, [Option<Box<Expression>>; 3]),
    Call {
        function: Box<Expression>,
        positional: Vec<Argument>,
        keywords: Vec<(Arc<str>, Expression)>,
    },
    /// `[element for …]`, or the same as a generator that is used up on the spot.
    Comprehension {
        lazy: bool,
        element: Box<Expression>,
        loops: Vec<Loop>,
    },
}

/// One `for target in items if …` of a comprehension.
#[derive(Debug, Clone)]
pub(super) struct Loop {
    pub(super) target: Target,
    pub(super) items: Expression,
    pub(super) conditions: Vec<Expression>,
}

#[derive(Debug, Clone)]
pub(super) enum Argument {
    One(Expression),
    /// `*items`
    Star(Expression),
}

#[derive(Debug, Clone)]
pub(super) enum FormatPart {
    Text(Arc<str>),
    Value { value: Expression, representation: bool, specification: Arc<str> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BinaryOperator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UnaryOperator {
    Not,
    Minus,
    Plus,
    Invert,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
    /// Only ever with `None`, `True` or `False` on the right.
    Is,
    IsNot,
}
