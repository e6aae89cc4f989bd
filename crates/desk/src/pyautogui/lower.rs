//! From Python's grammar to the subset. Everything that is not known here, in any place of the
//! program, sends the whole of it to the real interpreter.
//!
//! Errors and warnings that the compiler finds are part of a program's output, so what could
//! cause one is not lowered either.

use super::literal::{is_clean_number, is_clean_string};
use super::modules;
use super::syntax::{
    Argument, BinaryOperator, Comparison, Expression, FormatPart, Loop, Script, Statement, StatementKind, Target, UnaryOperator,
};
use super::value::{Module, Value};
use ruff_python_ast::token::TokenKind;
use ruff_python_ast::{
    self as ast, CmpOp, ConversionFlag, Expr, FStringPart, InterpolatedStringElement, Number, Operator, PythonVersion, Stmt,
    UnaryOp,
};
use ruff_python_parser::{Mode, ParseOptions, Parsed, lexer, parse_unchecked};
use ruff_text_size::Ranged;
use std::collections::HashMap;
use std::sync::Arc;

/// A longer program can't be an argument of a process anyway, and agents write one or two kilobytes.
const MOST_BYTES: usize = 100_000;
/// How many operators, dots and brackets a statement may have. The parser's tree is at most that
/// deep, and it is taken down recursively.
const MOST_NESTING: usize = 1500;
/// How deep expressions and blocks nest in what we run.
const MOST_DEPTH: usize = 50;

/// The program in our shape, or nothing if any part of it is outside the subset.
pub(super) fn lower(code: &str) -> Option<Script> {
    if code.len() > MOST_BYTES || is_read_differently(code) || is_too_nested(code) {
        return None;
    }
    let parsed = parse(code);
    if parsed.has_syntax_errors() {
        return None;
    }
    let ast::Mod::Module(module) = parsed.into_syntax() else { return None };
    let mut lowering = Lowering::new(code);
    let body = lowering.block(&module.body)?;
    Some(Script { body, slots: lowering.slots, needs_display: lowering.needs_display })
}

/// Where and how the grammar is broken, if it is: the line, counted from one, and the words.
pub(super) fn syntax_error(code: &str) -> Option<(usize, String)> {
    if code.len() > MOST_BYTES || is_too_nested(code) {
        return None;
    }
    let parsed = parse(code);
    let error = parsed.errors().first()?;
    Some((line_of(&line_starts(code), error.range().start().to_usize()), error.error.to_string()))
}

/// The oldest version's grammar: what newer ones add is not for us.
fn parse(code: &str) -> Parsed<ast::Mod> {
    parse_unchecked(code, ParseOptions::from(Mode::Module).with_target_version(PythonVersion::PY38))
}

/// Text that Python's reader changes before it is parsed.
fn is_read_differently(code: &str) -> bool {
    let declares_encoding = || code.lines().take(2).any(|line| line.contains('#') && line.contains("coding"));
    code.contains(['\r', '\0', '\u{c}']) || code.starts_with('\u{feff}') || (!code.is_ascii() && declares_encoding())
}

fn is_too_nested(code: &str) -> bool {
    let mut tokens = lexer::lex(code, Mode::Module);
    let mut nesting = 0_usize;
    loop {
        match tokens.next_token() {
            TokenKind::EndOfFile => return false,
            TokenKind::Newline => nesting = 0,
            TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::String
            | TokenKind::Comma
            | TokenKind::Comment
            | TokenKind::NonLogicalNewline => {}
            _ => nesting += 1,
        }
        if nesting > MOST_NESTING {
            return true;
        }
    }
}

struct Lowering<'a> {
    code: &'a str,
    lines: Vec<usize>,
    /// Names and their slots: the program's own first, then those of open comprehensions.
    scopes: Vec<HashMap<String, usize>>,
    slots: usize,
    loops: usize,
    depth: usize,
    needs_display: bool,
}

impl<'a> Lowering<'a> {
    fn new(code: &'a str) -> Self {
        let scopes = vec![HashMap::new()];
        Self { code, lines: line_starts(code), scopes, slots: 0, loops: 0, depth: 0, needs_display: false }
    }

    fn block(&mut self, statements: &[Stmt]) -> Option<Vec<Statement>> {
        self.deeper(|this| statements.iter().map(|statement| this.statement(statement)).collect())
    }

    fn loop_body(&mut self, statements: &[Stmt]) -> Option<Vec<Statement>> {
        self.loops += 1;
        let body = self.block(statements);
        self.loops -= 1;
        body
    }

    fn statement(&mut self, statement: &Stmt) -> Option<Statement> {
        let line = line_of(&self.lines, statement.range().start().to_usize());
        let kind = match statement {
            Stmt::Expr(statement) => StatementKind::Expression(self.expression(&statement.value)?),
            Stmt::Assign(statement) => {
                let value = self.expression(&statement.value)?;
                let targets = statement.targets.iter().map(|target| self.target(target)).collect::<Option<_>>()?;
                StatementKind::Assign(targets, value)
            }
            Stmt::AnnAssign(statement) => {
                let plain =
                    |name: &Expr| matches!(name, Expr::Name(n) if ["int", "float", "str", "bool"].contains(&n.id.as_str()));
                if !statement.simple || !plain(&statement.annotation) {
                    return None;
                }
                let value = self.expression(statement.value.as_deref()?)?;
                StatementKind::Assign(vec![self.target(&statement.target)?], value)
            }
            Stmt::AugAssign(statement) => {
                let Expr::Name(name) = statement.target.as_ref() else { return None };
                let value = self.expression(&statement.value)?;
                StatementKind::Augment(self.slot(&name.id)?, binary_operator(statement.op)?, value)
            }
            Stmt::For(statement) if !statement.is_async => StatementKind::For {
                items: self.expression(&statement.iter)?,
                target: self.target(&statement.target)?,
                body: self.loop_body(&statement.body)?,
                otherwise: self.block(&statement.orelse)?,
            },
            Stmt::While(statement) => StatementKind::While {
                condition: self.expression(&statement.test)?,
                body: self.loop_body(&statement.body)?,
                otherwise: self.block(&statement.orelse)?,
            },
            Stmt::If(statement) => {
                let mut branches = vec![(self.expression(&statement.test)?, self.block(&statement.body)?)];
                let mut otherwise = Vec::new();
                for clause in &statement.elif_else_clauses {
                    let body = self.block(&clause.body)?;
                    match &clause.test {
                        Some(test) => branches.push((self.expression(test)?, body)),
                        None => otherwise = body,
                    }
                }
                StatementKind::If(branches, otherwise)
            }
            Stmt::Import(statement) if !statement.is_lazy => {
                StatementKind::Bind(statement.names.iter().map(|alias| self.import(alias)).collect::<Option<_>>()?)
            }
            Stmt::ImportFrom(statement) if statement.level == 0 && !statement.is_lazy => {
                let module = self.module(statement.module.as_ref()?)?;
                let names = statement.names.iter().map(|alias| {
                    let value = modules::attribute(module, &alias.name)?;
                    Some((self.slot(alias.asname.as_ref().unwrap_or(&alias.name))?, value))
                });
                StatementKind::Bind(names.collect::<Option<_>>()?)
            }
            Stmt::Break(_) if self.loops > 0 => StatementKind::Break,
            Stmt::Continue(_) if self.loops > 0 => StatementKind::Continue,
            Stmt::Pass(_) => StatementKind::Pass,
            _ => return None,
        };
        Some(Statement { line, kind })
    }

    fn import(&mut self, alias: &ast::Alias) -> Option<(usize, Value)> {
        let module = self.module(&alias.name)?;
        match &alias.asname {
            Some(name) => Some((self.slot(name)?, Value::Module(module))),
            None if module == Module::OsPath => Some((self.slot("os")?, Value::Module(Module::Os))),
            None => Some((self.slot(&alias.name)?, Value::Module(module))),
        }
    }

    fn module(&mut self, name: &str) -> Option<Module> {
        let module = modules::module(name)?;
        self.needs_display |= module == Module::PyAutoGui;
        Some(module)
    }

    fn target(&mut self, target: &Expr) -> Option<Target> {
        match target {
            Expr::Name(name) => Some(Target::Name(self.slot(&name.id)?)),
            Expr::Tuple(ast::ExprTuple { elts, .. }) | Expr::List(ast::ExprList { elts, .. }) => {
                let targets = self.deeper(|this| elts.iter().map(|target| this.target(target)).collect())?;
                Some(Target::Many(targets))
            }
            Expr::Attribute(attribute) => {
                Some(Target::Attribute(self.expression(&attribute.value)?, Arc::from(attribute.attr.as_str())))
            }
            _ => None,
        }
    }

    fn expression(&mut self, expression: &Expr) -> Option<Expression> {
        self.deeper(|this| this.expression_at_depth(expression))
    }

    fn boxed(&mut self, expression: &Expr) -> Option<Box<Expression>> {
        Some(Box::new(self.expression(expression)?))
    }

    fn expression_at_depth(&mut self, expression: &Expr) -> Option<Expression> {
        Some(match expression {
            Expr::NoneLiteral(_) => Expression::Constant(Value::None),
            Expr::BooleanLiteral(literal) => Expression::Constant(Value::Bool(literal.value)),
            Expr::NumberLiteral(literal) => Expression::Constant(self.number(literal)?),
            Expr::StringLiteral(literal) => {
                if !literal.value.iter().all(|part| is_clean_string(self.text(part), part.flags.prefix().is_raw())) {
                    return None;
                }
                Expression::Constant(Value::text(literal.value.to_str()))
            }
            Expr::FString(literal) => Expression::Format(self.format_string(literal)?),
            Expr::Name(name) => Expression::Name(self.slot(&name.id)?, modules::builtin(&name.id)),
            Expr::Tuple(tuple) => Expression::Tuple(self.arguments(&tuple.elts)?),
            Expr::List(list) => Expression::List(self.arguments(&list.elts)?),
            Expr::BinOp(operation) => Expression::Binary(
                binary_operator(operation.op)?,
                Box::new((self.expression(&operation.left)?, self.expression(&operation.right)?)),
            ),
            Expr::UnaryOp(operation) => Expression::Unary(
                match operation.op {
                    UnaryOp::Not => UnaryOperator::Not,
                    UnaryOp::USub => UnaryOperator::Minus,
                    UnaryOp::UAdd => UnaryOperator::Plus,
                    UnaryOp::Invert => UnaryOperator::Invert,
                },
                self.boxed(&operation.operand)?,
            ),
            Expr::BoolOp(operation) => Expression::Logic(
                operation.op == ast::BoolOp::And,
                operation.values.iter().map(|value| self.expression(value)).collect::<Option<_>>()?,
            ),
            Expr::Compare(comparison) => self.comparison(comparison)?,
            Expr::If(choice) => Expression::Choice(Box::new((
                self.expression(&choice.test)?,
                self.expression(&choice.body)?,
                self.expression(&choice.orelse)?,
            ))),
            Expr::Attribute(attribute) => {
                Expression::Attribute(self.boxed(&attribute.value)?, Arc::from(attribute.attr.as_str()))
            }
            Expr::Subscript(subscript) => self.subscript(subscript)?,
            Expr::Call(call) => self.call(call)?,
            Expr::ListComp(comprehension) => self.comprehension(false, &comprehension.elt, &comprehension.generators)?,
            _ => return None,
        })
    }

    fn number(&self, literal: &ast::ExprNumberLiteral) -> Option<Value> {
        let end = literal.range.end().to_usize();
        if !is_clean_number(self.text(literal), self.code.get(end..)?) {
            return None;
        }
        match &literal.value {
            Number::Int(n) => n.as_i64().map(Value::Int),
            Number::Float(n) if n.is_finite() => Some(Value::Float(*n)),
            _ => None,
        }
    }

    fn format_string(&mut self, literal: &ast::ExprFString) -> Option<Vec<FormatPart>> {
        let mut parts = Vec::new();
        for part in literal.value.iter() {
            match part {
                FStringPart::Literal(part) => {
                    if !is_clean_string(self.text(part), part.flags.prefix().is_raw()) {
                        return None;
                    }
                    parts.push(FormatPart::Text(Arc::from(&*part.value)));
                }
                FStringPart::FString(part) => {
                    let raw = part.flags.prefix().is_raw();
                    for element in part.elements.iter() {
                        parts.push(match element {
                            InterpolatedStringElement::Literal(text) => {
                                if !is_clean_string(self.text(text), raw) {
                                    return None;
                                }
                                FormatPart::Text(Arc::from(&*text.value))
                            }
                            InterpolatedStringElement::Interpolation(element) => self.format_value(element)?,
                        });
                    }
                }
            }
        }
        Some(parts)
    }

    fn format_value(&mut self, element: &ast::InterpolatedElement) -> Option<FormatPart> {
        if element.debug_text.is_some() || element.conversion == ConversionFlag::Ascii {
            return None;
        }
        let mut specification = String::new();
        for part in element.format_spec.iter().flat_map(|specification| specification.elements.iter()) {
            let InterpolatedStringElement::Literal(text) = part else { return None };
            if text.value.contains(['\\', '{', '}']) || self.text(text) != &*text.value {
                return None;
            }
            specification.push_str(&text.value);
        }
        Some(FormatPart::Value {
            value: self.expression(&element.expression)?,
            // `!s` and nothing differ only for values that the subset has no specification for.
            representation: element.conversion == ConversionFlag::Repr,
            specification: match element.conversion {
                ConversionFlag::None => specification.into(),
                _ if specification.is_empty() => "".into(),
                _ => return None,
            },
        })
    }

    fn comparison(&mut self, comparison: &ast::ExprCompare) -> Option<Expression> {
        let first = self.boxed(&comparison.left)?;
        let mut rest = Vec::new();
        let mut left = comparison.left.as_ref();
        for (operator, right) in comparison.ops.iter().zip(&comparison.comparators) {
            let operator = match operator {
                CmpOp::Eq => Comparison::Equal,
                CmpOp::NotEq => Comparison::NotEqual,
                CmpOp::Lt => Comparison::Less,
                CmpOp::LtE => Comparison::LessOrEqual,
                CmpOp::Gt => Comparison::Greater,
                CmpOp::GtE => Comparison::GreaterOrEqual,
                CmpOp::In => Comparison::In,
                CmpOp::NotIn => Comparison::NotIn,
                CmpOp::Is | CmpOp::IsNot => {
                    // Anything else is a matter of identity, or a warning.
                    let singleton = matches!(right, Expr::NoneLiteral(_) | Expr::BooleanLiteral(_));
                    if !singleton || !matches!(left, Expr::Name(_)) {
                        return None;
                    }
                    if *operator == CmpOp::Is { Comparison::Is } else { Comparison::IsNot }
                }
            };
            rest.push((operator, self.expression(right)?));
            left = right;
        }
        Some(Expression::Compare(first, rest))
    }

    fn subscript(&mut self, subscript: &ast::ExprSubscript) -> Option<Expression> {
        // Literals with a subscript of the wrong type are a warning.
        if !matches!(subscript.value.as_ref(), Expr::Name(_) | Expr::Attribute(_) | Expr::Call(_) | Expr::Subscript(_)) {
            return None;
        }
        let value = self.expression(&subscript.value)?;
        if let Expr::Slice(slice) = subscript.slice.as_ref() {
            let mut bound = |bound: &Option<Box<Expr>>| match bound {
                Some(bound) => self.boxed(bound).map(Some),
                None => Some(None),
            };
            return Some(Expression::Slice(Box::new(value), [bound(&slice.lower)?, bound(&slice.upper)?, bound(&slice.step)?]));
        }
        Some(Expression::Index(Box::new((value, self.expression(&subscript.slice)?))))
    }

    fn call(&mut self, call: &ast::ExprCall) -> Option<Expression> {
        // Calling a literal is a warning.
        if !matches!(call.func.as_ref(), Expr::Name(_) | Expr::Attribute(_)) {
            return None;
        }
        let function = self.boxed(&call.func)?;
        let (positional, keywords) = (&call.arguments.args, &call.arguments.keywords);
        let last = positional.last().map(|argument| argument.range().start());
        if keywords.first().is_some_and(|keyword| last > Some(keyword.range().start())) {
            return None;
        }
        let positional = match &positional[..] {
            [Expr::Generator(generator)] if keywords.is_empty() => {
                vec![Argument::One(self.comprehension(true, &generator.elt, &generator.generators)?)]
            }
            arguments => self.arguments(arguments)?,
        };
        let mut named: Vec<(Arc<str>, Expression)> = Vec::new();
        for keyword in keywords {
            let name: Arc<str> = Arc::from(keyword.arg.as_ref()?.as_str());
            if named.iter().any(|(other, _)| *other == name) {
                return None;
            }
            named.push((name, self.expression(&keyword.value)?));
        }
        Some(Expression::Call { function, positional, keywords: named })
    }

    fn arguments(&mut self, arguments: &[Expr]) -> Option<Vec<Argument>> {
        let one = |argument: &Expr| match argument {
            Expr::Starred(starred) => Some(Argument::Star(self.expression(&starred.value)?)),
            argument => Some(Argument::One(self.expression(argument)?)),
        };
        arguments.iter().map(one).collect()
    }

    /// The names that a comprehension binds are its own; only its first items are looked up outside.
    fn comprehension(&mut self, lazy: bool, element: &Expr, loops: &[ast::Comprehension]) -> Option<Expression> {
        let mut first = Some(self.expression(&loops.first()?.iter)?);
        self.scopes.push(HashMap::new());
        let mut lowered = Vec::new();
        for each in loops {
            self.bind_own(&each.target)?;
        }
        for each in loops {
            if each.is_async {
                return None;
            }
            lowered.push(Loop {
                items: match first.take() {
                    Some(items) => items,
                    None => self.expression(&each.iter)?,
                },
                target: self.target(&each.target)?,
                conditions: each.ifs.iter().map(|condition| self.expression(condition)).collect::<Option<_>>()?,
            });
        }
        let element = self.boxed(element)?;
        self.scopes.pop();
        Some(Expression::Comprehension { lazy, element, loops: lowered })
    }

    fn bind_own(&mut self, target: &Expr) -> Option<()> {
        match target {
            Expr::Name(name) => {
                let slot = self.slots;
                self.slots += 1;
                self.scopes.last_mut()?.insert(plain_name(&name.id)?.to_owned(), slot);
                Some(())
            }
            Expr::Tuple(tuple) => tuple.elts.iter().try_for_each(|target| self.bind_own(target).ok_or(())).ok(),
            _ => None,
        }
    }

    fn slot(&mut self, name: &str) -> Option<usize> {
        let name = plain_name(name)?;
        if let Some(slot) = self.scopes.iter().rev().find_map(|scope| scope.get(name)) {
            return Some(*slot);
        }
        let slot = self.slots;
        self.slots += 1;
        self.scopes.first_mut()?.insert(name.to_owned(), slot);
        Some(slot)
    }

    fn text(&self, part: &impl Ranged) -> &'a str {
        self.code.get(part.range().start().to_usize()..part.range().end().to_usize()).unwrap_or_default()
    }

    fn deeper<T>(&mut self, lower: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth == MOST_DEPTH {
            return None;
        }
        self.depth += 1;
        let lowered = lower(self);
        self.depth -= 1;
        lowered
    }
}

/// Other identifiers are changed by Python's reader.
fn plain_name(name: &str) -> Option<&str> {
    (name.is_ascii() && (name == "__name__" || !name.starts_with("__"))).then_some(name)
}

fn binary_operator(operator: Operator) -> Option<BinaryOperator> {
    Some(match operator {
        Operator::Add => BinaryOperator::Add,
        Operator::Sub => BinaryOperator::Subtract,
        Operator::Mult => BinaryOperator::Multiply,
        Operator::Div => BinaryOperator::Divide,
        Operator::FloorDiv => BinaryOperator::FloorDivide,
        Operator::Mod => BinaryOperator::Modulo,
        Operator::Pow => BinaryOperator::Power,
        Operator::BitAnd => BinaryOperator::And,
        Operator::BitOr => BinaryOperator::Or,
        Operator::BitXor => BinaryOperator::Xor,
        _ => return None,
    })
}

fn line_starts(code: &str) -> Vec<usize> {
    std::iter::once(0).chain(code.match_indices('\n').map(|(at, _)| at + 1)).collect()
}

fn line_of(starts: &[usize], offset: usize) -> usize {
    starts.partition_point(|start| *start <= offset)
}
