"""Loops of recurrent layers as the operators LSTM, GRU and RNN."""
